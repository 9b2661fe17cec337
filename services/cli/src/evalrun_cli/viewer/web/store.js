// Reads the files of a run (docs/view.md), served or static: both through this module alone.

const INDEXING_MILLISECONDS = 250; // between two looks at an index that is being built
const MAX_GROUPS = 64; // groups of texts that are kept, 256 KiB each

/** Return an address of data. Relative, so that a directory of static files works anywhere. */
const address = (...parts) => ["data", ...parts].join("/");

/** The server of the page cannot be reached, which may pass. */
export class LostError extends Error {}

async function request(url, range) {
  const headers = range ? { Range: `bytes=${range[0]}-${range[1] - 1}` } : {};
  const response = await fetch(url, { headers, cache: range ? "default" : "no-cache" }).catch(() => {
    throw new LostError("the page's server does not answer; trying again");
  });
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(told.error ?? `${url}: the server answers ${response.status}`);
  }
  // A server without range requests sends the whole file.
  const bytes = new Uint8Array(await response.arrayBuffer());
  return range && response.status === 200 ? bytes.subarray(range[0], range[1]) : bytes;
}

export const readJson = async (...parts) => JSON.parse(new TextDecoder().decode(await request(address(...parts))));

async function gunzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const textOf = (bytes) => new TextDecoder().decode(bytes);
const jsonOf = async (bytes) => JSON.parse(textOf(await gunzip(bytes)));

/** A column of all rows. Of texts `values` are codes into `texts`. */
class Column {
  constructor(field) {
    this.field = field;
    this.texts = [];
    this.codes = new Map();
    this.values = this.empty(0);
  }

  empty(rows) {
    return this.field.kind === "number" ? new Float32Array(rows).fill(NaN)
      : this.field.kind === "flag" ? new Uint8Array(rows).fill(2) : new Uint32Array(rows);
  }

  resize(rows) {
    const old = this.values;
    this.values = this.empty(rows);
    this.values.set(old.subarray(0, rows));
  }

  code(text) {
    let code = this.codes.get(text);
    if (code === undefined) {
      code = this.texts.push(text) - 1;
      this.codes.set(text, code);
    }
    return code;
  }

  at(row) {
    const value = this.values[row];
    if (this.field.kind === "text" || this.field.kind === "tags") return this.texts[value] ?? "";
    if (this.field.kind === "flag") return value === 2 ? null : value === 1;
    return value;
  }
}

async function decoded(place, packed, start) {
  const part = async ([offset, length]) => gunzip(packed.subarray(offset - start, offset - start + length));
  const bytes = await part(place.values);
  const buffer = bytes.buffer;
  if (place.type === "number") return { values: new Float32Array(buffer) };
  if (place.type === "flag") return { values: bytes };
  const codes = place.width === 1 ? bytes : place.width === 2 ? new Uint16Array(buffer) : new Uint32Array(buffer);
  return { values: codes, texts: JSON.parse(textOf(await part(place.texts))) };
}

/** A run: its rows by number, over all segments. */
export class Run {
  constructor(id) {
    this.id = id;
    this.about = null;
    this.rows = 0; // that are loaded
    this.segments = [];
    this.columns = new Map();
    this.hidden = new Set();
    this.groups = new Map();
    this.directories = new Map();
    this.prompts = null;
    this.busy = null;
  }

  /** Read the new data. `changed` is called whenever rows have arrived. Return whether anything has changed. */
  refresh(changed = () => {}) {
    this.busy ??= this.load(changed).finally(() => { this.busy = null; });
    return this.busy;
  }

  /** Read all rows. If the run is being indexed, wait until its index is complete. */
  async whole(isCurrent) {
    await this.refresh();
    while (!this.about.complete && !this.about.live && isCurrent()) {
      await new Promise((resolve) => { setTimeout(resolve, INDEXING_MILLISECONDS); });
      await this.refresh();
    }
  }

  async load(changed) {
    const about = await readJson(this.id, "run.json");
    const first = this.about === null;
    const before = first ? "" : `${this.about.live} ${this.about.complete} ${this.about.prompts}`;
    this.about = about;
    for (const field of about.fields) {
      if (field.small && !this.columns.has(field.name)) this.columns.set(field.name, new Column(field));
    }
    let same = 0;
    while (same < this.segments.length && this.segments[same].name === about.segments[same]?.name) same += 1;
    const isNew = same < about.segments.length || same < this.segments.length
      || this.hidden.size !== about.superseded.length;
    this.hidden = new Set(about.superseded);
    this.segments.length = same;
    this.rows = same ? this.segments[same - 1].end : 0;
    for (const name of [...this.groups.keys()]) if (Number(name.split(":")[0]) >= same) this.groups.delete(name);
    for (const name of [...this.directories.keys()]) if (name >= same) this.directories.delete(name);
    const total = about.segments.reduce((sum, each) => sum + each.rows, 0);
    for (const column of this.columns.values()) column.resize(total);
    if (isNew && this.rows) changed();
    // The next segment is fetched while one is decoded.
    let next = same < about.segments.length ? this.fetchColumns(about.segments[same]) : null;
    for (let place = same; place < about.segments.length; place += 1) {
      const packed = await next;
      next = place + 1 < about.segments.length ? this.fetchColumns(about.segments[place + 1]) : null;
      next?.catch(() => {});
      await this.addSegment(about.segments[place], packed);
      changed();
    }
    return isNew || first || before !== `${about.live} ${about.complete} ${about.prompts}`;
  }

  fetchColumns(entry) {
    return request(address(this.id, `${entry.name}.columns`));
  }

  async addSegment(entry, packed) {
    const start = this.rows;
    await Promise.all([...this.columns.values()].map(async (column) => {
      const { values, texts } = await decoded(entry.fields[column.field.name], packed, 0);
      if (!texts) {
        column.values.set(values, start);
        return;
      }
      const codes = texts.map((text) => column.code(text));
      for (let row = 0; row < values.length; row += 1) column.values[start + row] = codes[values[row]];
    }));
    this.rows = start + entry.rows;
    this.segments.push({ ...entry, begin: start, end: this.rows });
  }

  column(name) {
    return this.columns.get(name);
  }

  placeOf(row) {
    let low = 0;
    let high = this.segments.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.segments[middle].end <= row) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Return the whole row, as results.jsonl has it; a promise. */
  async row(row) {
    const place = this.placeOf(row);
    const segment = this.segments[place];
    const rows = segment.texts.rows;
    let group = 0;
    while (rows[group] <= row - segment.begin) group += 1;
    const lines = await this.group(place, group);
    return lines[row - segment.begin - (group ? rows[group - 1] : 0)];
  }

  group(place, group) {
    const key = `${place}:${group}`;
    let found = this.groups.get(key);
    if (found === undefined) {
      const { file, start, ends, packed } = this.segments[place].texts;
      const range = [start + (group ? ends[group - 1] : 0), start + ends[group]];
      found = request(address(this.id, file), range)
        .then((bytes) => (packed ? gunzip(bytes) : bytes))
        .then((bytes) => textOf(bytes).trimEnd().split("\n").map((line) => JSON.parse(line)));
      found.catch(() => this.groups.delete(key));
    } else {
      // The group is moved to the end, because the least recently used group is dropped first.
      this.groups.delete(key);
    }
    this.groups.set(key, found);
    if (this.groups.size > MAX_GROUPS) this.groups.delete(this.groups.keys().next().value);
    return found;
  }

  /** Return the prompt of a problem as messages; null where the run has none. */
  async prompt(dataset, problem) {
    if (!this.about.prompts) return null;
    this.prompts ??= readJson(this.id, "prompts.json").then((places) =>
      new Map(places.map((each) => [JSON.stringify([each.dataset, each.problem]), each.place])));
    const place = (await this.prompts).get(JSON.stringify([dataset, problem]));
    if (!place) return null;
    const bytes = await request(address(this.id, "prompts.jsonl"), [place[0], place[0] + place[1]]);
    return JSON.parse(textOf(bytes)).messages;
  }

  /** Return a byte per row: 1 if its texts contain a word with this prefix, else 0. */
  async search(prefix) {
    const marks = new Uint8Array(this.rows);
    await Promise.all(this.segments.map((segment, place) => this.searchSegment(segment, place, prefix, marks)));
    return marks;
  }

  async searchSegment(segment, place, prefix, marks) {
    const file = address(this.id, `${segment.name}.words`);
    if (!this.directories.has(place)) {
      const [offset, length] = segment.directory;
      this.directories.set(place, request(file, [offset, offset + length]).then(jsonOf));
    }
    const { first, ends } = await this.directories.get(place);
    if (!first.length) return;
    const last = `${prefix}\uffff`;
    let from = lowerBound(first, prefix);
    if (from === first.length || first[from] !== prefix) from = Math.max(0, from - 1);
    const to = lowerBound(first, last); // the block after the last
    if (to <= from) return;
    const begin = from ? ends[from - 1] : 0;
    const bytes = await request(file, [begin, ends[to - 1]]);
    await Promise.all(ends.slice(from, to).map(async (end, block) => {
      const start = (from + block ? ends[from + block - 1] : 0) - begin;
      markBlock(await gunzip(bytes.subarray(start, end - begin)), prefix, marks, segment.begin);
    }));
  }
}

function markBlock(bytes, prefix, marks, begin) {
  const head = bytes.indexOf(10);
  const [words, counts] = JSON.parse(textOf(bytes.subarray(0, head)));
  const view = new DataView(bytes.buffer, bytes.byteOffset + head + 1);
  let place = 0;
  for (let index = 0; index < words.length; index += 1) {
    if (words[index].startsWith(prefix)) {
      let row = 0;
      for (let each = 0; each < counts[index]; each += 1) {
        row += view.getUint16(place + 2 * each, true);
        marks[begin + row] = 1;
      }
    }
    place += 2 * counts[index];
  }
}

function lowerBound(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

const opened = new Map();

/** Return the run of an id: one object for the whole page. */
export function openRun(id) {
  if (!opened.has(id)) opened.set(id, new Run(id));
  return opened.get(id);
}
