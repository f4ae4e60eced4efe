// Polygons and lines on a camera's frame, in fractions of its width and height, as the configuration has them.

/** The most points, as in the daemon. */
const MOST = 64;

/** Returns a pixel as the fraction of a side of the frame that the daemon takes for exactly this pixel. */
export function fraction(pixel, side) {
  return Number((pixel / side).toFixed(7));
}

/** Returns the edges, [from, to]; the last one of a closed shape leads to its first point. */
export function edges(points, closed) {
  return points.map((point, at) => [point, points[(at + 1) % points.length]]).slice(0, closed ? points.length : -1);
}

/** Returns the middle of a line, and the direction to its left for somebody who walks along it, of length 1. */
export function middle(points) {
  const all = edges(points, false);
  const lengths = all.map(([a, b]) => Math.hypot(b[0] - a[0], b[1] - a[1]));
  let rest = lengths.reduce((sum, length) => sum + length, 0) / 2;
  let at = 0;
  for (; at < all.length - 1 && rest > lengths[at]; at += 1) rest -= lengths[at];
  const [a, b] = all[at] ?? [points[0], points[0]];
  const [x, y] = [b[0] - a[0], b[1] - a[1]].map((part) => part / (lengths[at] || 1));
  return { at: [a[0] + x * rest, a[1] + y * rest], left: [y, -x] };
}

/** On which side of the line from `a` to `b` a point is: positive, negative, or 0 on the line. */
const side = ([a, b], [x, y]) => (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]);

/** Whether an edge goes back over the one before it. */
function foldsBack(before, after) {
  const [first, second] = [before, after].map(([a, b]) => [b[0] - a[0], b[1] - a[1]]);
  return side(before, after[1]) === 0 && first[0] * second[0] + first[1] * second[1] < 0;
}

/** Whether two edges without a common point cross or touch. */
function touches(first, second) {
  const apart = (axis) => {
    const [[a, b], [c, d]] = [first, second].map(([from, to]) => [from[axis], to[axis]].sort((a, b) => a - b));
    return b < c || d < a;
  };
  const straddles = (line, edge) => side(line, edge[0]) * side(line, edge[1]) <= 0;
  return !apart(0) && !apart(1) && straddles(first, second) && straddles(second, first);
}

/** Returns what the daemon would refuse about a shape, or null. */
export function fault(points, { closed, least }) {
  if (points.length < least) return `has ${points.length} points, and needs at least ${least}: add more`;
  if (points.length > MOST) return `has ${points.length} points, more than ${MOST}: delete some`;
  if (points.some((point) => point.some((part) => !(part >= 0 && part <= 1)))) return 'has a point outside the frame: move it';
  if (!closed) return points.every((point) => point[0] === points[0][0] && point[1] === points[0][1]) ? 'needs two different points: move one' : null;
  for (const [at, point] of points.entries()) {
    const more = points.findIndex((other, place) => place > at && other[0] === point[0] && other[1] === point[1]);
    if (more > 0) return `has the same point twice, at positions ${at + 1} and ${more + 1}: move or delete one`;
  }
  const all = edges(points, true);
  for (let i = 0; i < all.length; i += 1) {
    for (let j = i + 1; j < all.length; j += 1) {
      const meets = j === i + 1 ? foldsBack(all[i], all[j]) : i === 0 && j === all.length - 1 ? foldsBack(all[j], all[i]) : touches(all[i], all[j]);
      if (meets) return `crosses or touches itself: the edge from point ${i + 1} meets the edge from point ${j + 1}`;
    }
  }
  return null;
}
