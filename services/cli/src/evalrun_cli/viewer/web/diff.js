// Computes a diff of two texts by lines, from their longest common subsequence.

const MAX_LINES = 400; // of either side: more are shown without a diff

/** Return [["same" | "less" | "more", line], …]; null where the texts are too long. */
export function diffLines(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  if (a.length > MAX_LINES || b.length > MAX_LINES) return null;
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (j === b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      lines.push(["less", a[i]]);
      i += 1;
    } else {
      lines.push(["more", b[j]]);
      j += 1;
    }
  }
  return lines;
}
