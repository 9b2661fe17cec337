// Colours programs with Highlight.js, straight into nodes: it is never asked for HTML.

import hljs from "./highlight-core.js";
import c from "./highlight-c.js";
import cpp from "./highlight-cpp.js";
import go from "./highlight-go.js";
import javascript from "./highlight-javascript.js";
import python from "./highlight-python.js";
import rust from "./highlight-rust.js";
import typescript from "./highlight-typescript.js";
import { h } from "./dom.js";

const MAX_CHARACTERS = 60_000; // more stay plain

/** What Highlight.js emits to: it keeps nodes where the library's own would keep HTML. */
class NodeEmitter {
  constructor() {
    this.root = document.createDocumentFragment();
    this.open = [this.root];
  }

  get top() {
    return this.open[this.open.length - 1];
  }

  addText(text) {
    if (text) this.top.append(...h("div", null, text).childNodes);
  }

  openNode(scope) {
    const node = h("span", { class: scope ? `hljs-${scope.replace(/\W/g, "-")}` : null });
    this.top.append(node);
    this.open.push(node);
  }

  closeNode() {
    if (this.open.length > 1) this.open.pop();
  }

  startScope(scope) {
    this.openNode(scope);
  }

  endScope() {
    this.closeNode();
  }

  __addSublanguage(other) {
    this.top.append(other.root);
  }

  finalize() {
    this.open.length = 1;
  }

  toHTML() {
    return "";
  }
}

hljs.configure({ __emitter: NodeEmitter });
for (const [name, grammar] of Object.entries({ python, cpp, c, go, javascript, rust, typescript })) hljs.registerLanguage(name, grammar);

/** Return a program as a `pre`, coloured where its language is known. */
export function program(code, language) {
  const name = hljs.getLanguage(language || "python") ? language || "python" : null;
  const coloured = name && code.length <= MAX_CHARACTERS ? hljs.highlight(code, { language: name, ignoreIllegals: true }) : null;
  // Where the library gave up, what it emitted is a part of the program.
  const inside = coloured && !coloured.errorRaised ? coloured._emitter.root : code;
  return h("pre", { dir: "ltr", tabindex: 0 }, h("code", null, inside));
}

const FENCE = /^[ \t]*```[ \t]*([\w+#-]*)[^\n]*$/gm;

/** Return a model's answer: fenced blocks as programs, what stands between them as text. */
export function answer(text, language) {
  const fences = [...text.matchAll(FENCE)];
  if (!fences.length) return [program(text, language)];
  const parts = [prose(text.slice(0, fences[0].index))];
  fences.forEach((fence, place) => {
    const inside = text.slice(fence.index + fence[0].length + 1, fences[place + 1]?.index ?? text.length);
    parts.push(place % 2 ? prose(inside) : program(inside.replace(/\n$/, ""), fence[1] || language));
  });
  return parts;
}

const prose = (text) => (text.trim() ? h("div", { class: "prose", dir: "auto" }, text.trim()) : null);
