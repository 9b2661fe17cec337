// Chooses the page by the address after #, and asks for what is new while a run goes on.

import { fill, h } from "./dom.js";
import { showCompare } from "./compare.js";
import { showRun, showRuns } from "./runs.js";
import { showSample } from "./sample.js";
import { showSamples } from "./samples.js";

const POLL_MILLISECONDS = 1000;
const page = document.getElementById("page");
const crumbs = document.getElementById("crumbs");
const live = document.getElementById("live");

/** `#/run/NAME/samples?q=…` as its parts and parameters. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), parameters: new URLSearchParams(query) };
}

let shown = { leave() {}, refresh: null };
let counter = 0;

async function route() {
  counter += 1;
  const mine = counter;
  shown.leave?.();
  shown = { leave() {}, refresh: null };
  const { parts, parameters } = place();
  const tell = (text) => { if (mine === counter) fill(live, text); };
  const context = { page, parameters, tell, isCurrent: () => mine === counter };
  showCrumbs(parts);
  fill(live);
  try {
    const made = await choose(parts, context);
    if (mine === counter) shown = made ?? shown;
    else made?.leave?.();
  } catch (error) {
    if (mine === counter) fill(page, h("div", { class: "notice", role: "alert" }, error.message));
  }
}

function choose(parts, context) {
  if (parts[0] === "run" && parts.length >= 2) {
    const [, run, view, ...rest] = parts;
    if (view === undefined) return showRun(run, context);
    if (view === "samples") return showSamples(run, context);
    if (view === "sample" && rest.length === 5) return showSample(run, rest, context);
  }
  if (parts[0] === "compare") return showCompare(context);
  if (!parts.length) return showRuns(context);
  throw new Error("no such page: begin at all runs");
}

function showCrumbs(parts) {
  const links = [h("a", { href: "#/" }, "all runs")];
  if (parts[0] === "run") {
    const run = `#/run/${encodeURIComponent(parts[1])}`;
    links.push(h("a", { href: run }, parts[1]));
    if (parts.length > 2) links.push(h("a", { href: `${run}/samples` }, "samples"));
  } else if (parts[0] === "compare") links.push(h("span", null, "compare"));
  fill(crumbs, links.map((link, index) => [index ? " / " : "", link]));
  document.title = [...parts.slice(1), "evalrun view"].join(" · ");
}

async function poll() {
  if (document.visibilityState === "visible" && shown.refresh) {
    try {
      await shown.refresh();
    } catch (error) {
      fill(live, `not up to date: ${error.message}`);
    }
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

addEventListener("hashchange", route);
route();
setTimeout(poll, POLL_MILLISECONDS);
