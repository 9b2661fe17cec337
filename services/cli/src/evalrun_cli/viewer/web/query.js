// Parses the text of the search box, and chooses and sorts rows. Without DOM and requests.

const CONDITION = /^(\w+)(!=|>=|<=|=|>|<)(.*)$/s;
const WORD = /[^\p{L}\p{N}_]+/u;
const MIN_WORD = 2;

/** Return the conditions and words of a query, and what is wrong with it. Conditions are those of `evalrun samples`. */
export function parseQuery(text, fields) {
  const byName = new Map(fields.filter((field) => field.small).map((field) => [field.name, field]));
  const conditions = [];
  const words = [];
  const problems = [];
  for (const [, quoted, bare] of text.matchAll(/"([^"]*)"|(\S+)/g)) {
    const match = CONDITION.exec(quoted ?? bare);
    if (match && byName.has(match[1])) {
      const [, name, sign, value] = match;
      const made = condition(byName.get(name), sign, value);
      if (typeof made === "string") problems.push(made);
      else conditions.push(made);
      continue;
    }
    for (const word of (quoted ?? bare).toLowerCase().split(WORD)) if (word.length >= MIN_WORD) words.push(word);
  }
  return { conditions, words, problems };
}

function condition(field, sign, value) {
  if (![ "=", "!=" ].includes(sign) && field.kind !== "number") return `${field.name}: write = or !=`;
  const values = [];
  for (const part of sign === "=" || sign === "!=" ? value.split("|") : [value]) {
    if (part === "none") values.push(null);
    else if (field.kind === "text" || field.kind === "tags") values.push(part);
    else if (field.kind === "flag" && /^(true|false|yes|no)$/i.test(part)) values.push(/^(true|yes)$/i.test(part));
    else if (field.kind === "number" && part !== "" && !Number.isNaN(Number(part))) values.push(Number(part));
    else return `${field.name}: ${part || "(nothing)"} is no ${field.kind}`;
  }
  return { field: field.name, kind: field.kind, sign, values };
}

/** Return the test of a column's raw value that a condition makes. */
function tester(column, { kind, sign, values }) {
  if (kind === "text") {
    const codes = new Set(values.map((value) => column.codes.get(value ?? "")));
    return sign === "=" ? (value) => codes.has(value) : (value) => !codes.has(value);
  }
  if (kind === "tags") {
    const isChosen = (text) => (text === "" ? values.includes(null) : text.split("\n").some((tag) => values.includes(tag)));
    const codes = new Set(column.texts.map((text, code) => (isChosen(text) ? code : -1)));
    return sign === "=" ? (value) => codes.has(value) : (value) => !codes.has(value);
  }
  if (kind === "flag") {
    const codes = values.map((value) => (value === null ? 2 : Number(value)));
    return sign === "=" ? (value) => codes.includes(value) : (value) => !codes.includes(value);
  }
  const hasNone = values.includes(null);
  const numbers = values.filter((value) => value !== null).map(Math.fround);
  const isOne = (value) => (Number.isNaN(value) ? hasNone : numbers.includes(value));
  switch (sign) {
    case "=": return isOne;
    case "!=": return (value) => !isOne(value);
    case ">": return (value) => value > numbers[0];
    case ">=": return (value) => value >= numbers[0];
    case "<": return (value) => value < numbers[0];
    default: return (value) => value <= numbers[0];
  }
}

/** Return the numbers of the rows that meet every condition and have every mark, in order. */
export function chooseRows(run, conditions, marks) {
  const rows = run.rows;
  const found = new Uint32Array(rows);
  const tests = conditions.map((each) => {
    const column = run.column(each.field);
    return { values: column.values, test: tester(column, each) };
  });
  let count = 0;
  next: for (let row = 0; row < rows; row += 1) {
    for (let each = 0; each < marks.length; each += 1) if (!marks[each][row]) continue next;
    for (let each = 0; each < tests.length; each += 1) if (!tests[each].test(tests[each].values[row])) continue next;
    if (run.hidden.size && run.hidden.has(row)) continue;
    found[count] = row;
    count += 1;
  }
  return found.subarray(0, count);
}

/** Return the rows sorted by a column; equal ones keep their order, absent values come last. */
export function sortRows(run, rows, name, isDown) {
  const column = run.column(name);
  const keys = new Uint32Array(rows.length);
  const last = 0xffffffff;
  if (column.field.kind === "text" || column.field.kind === "tags") {
    const order = column.texts.map((_, code) => code).sort((a, b) => compareTexts(column.texts[a], column.texts[b]));
    const ranks = new Uint32Array(order.length);
    order.forEach((code, rank) => { ranks[code] = isDown ? order.length - rank : rank; });
    for (let index = 0; index < rows.length; index += 1) keys[index] = ranks[column.values[rows[index]]];
  } else if (column.field.kind === "flag") {
    for (let index = 0; index < rows.length; index += 1) {
      const value = column.values[rows[index]];
      keys[index] = value === 2 ? last : isDown ? 1 - value : value;
    }
  } else {
    const bits = new Uint32Array(column.values.buffer, column.values.byteOffset, column.values.length);
    for (let index = 0; index < rows.length; index += 1) {
      const row = rows[index];
      if (Number.isNaN(column.values[row])) {
        keys[index] = last;
        continue;
      }
      // Flips the bits so that whole numbers compare as the floats do.
      const key = (bits[row] & 0x80000000 ? ~bits[row] : bits[row] | 0x80000000) >>> 0;
      keys[index] = isDown ? (0xfffffffe - key) >>> 0 : key;
    }
  }
  return radixSort(rows, keys);
}

const collator = new Intl.Collator("en", { numeric: true });
const compareTexts = (a, b) => collator.compare(a, b);

function radixSort(rows, keys) {
  let [from, fromKeys] = [Uint32Array.from(rows), keys];
  let [to, toKeys] = [new Uint32Array(rows.length), new Uint32Array(rows.length)];
  for (let shift = 0; shift < 32; shift += 11) {
    const counts = new Uint32Array(2048);
    for (let index = 0; index < from.length; index += 1) counts[(fromKeys[index] >>> shift) & 2047] += 1;
    if (counts[(fromKeys[0] >>> shift) & 2047] === from.length) continue; // all equal there
    let sum = 0;
    for (let bucket = 0; bucket < 2048; bucket += 1) [counts[bucket], sum] = [sum, sum + counts[bucket]];
    for (let index = 0; index < from.length; index += 1) {
      const bucket = (fromKeys[index] >>> shift) & 2047;
      const place = counts[bucket];
      counts[bucket] += 1;
      to[place] = from[index];
      toKeys[place] = fromKeys[index];
    }
    [from, to] = [to, from];
    [fromKeys, toKeys] = [toKeys, fromKeys];
  }
  return from;
}
