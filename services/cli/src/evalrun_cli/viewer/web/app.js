// Chooses the page by the address after #, and asks for what is new while a run goes on.

import { fill, h, plain } from "./dom.js";
import { showCompare } from "./compare.js";
import { showRun, showRuns } from "./runs.js";
import { showSample } from "./sample.js";
import { showSamples } from "./samples.js";
import { LostError, openRun } from "./store.js";

const POLL_MILLISECONDS = 1000;
const page = document.getElementById("page");
const crumbs = document.getElementById("crumbs");
const live = document.getElementById("live");
const lost = document.getElementById("lost");

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
    if (mine !== counter) {
      made?.leave?.();
      return;
    }
    shown = made ?? shown;
    tellLost(lostOf(parts));
  } catch (error) {
    if (mine !== counter) return;
    fill(page, h("h1", null, "Nothing to show"), h("div", { class: "notice", role: "alert" }, error.message));
    if (error instanceof LostError) shown = { leave() {}, refresh: route };
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

/** Return the server's reason why the shown data of a run may be outdated; empty if there is none. */
const lostOf = (parts) => (parts[0] === "run" ? openRun(parts[1]).about?.lost ?? "" : "");

function tellLost(text) {
  // An unchanged text stays, because a screen reader would read it aloud every second.
  if (lost.textContent !== plain(text)) fill(lost, text);
}

async function poll() {
  if (document.visibilityState === "visible" && shown.refresh) {
    try {
      await shown.refresh();
      tellLost(lostOf(place().parts));
    } catch (error) {
      tellLost(`Not up to date: ${error.message}`);
    }
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

addEventListener("hashchange", route);
route();
setTimeout(poll, POLL_MILLISECONDS);
