// Draws masks, boxes, points, skeletons, tails, labels and attributes on a picture, in the colours of visiond's annotated pictures.

import { shows } from './settings.js';
import { middle } from './shape.js';

const SHADES = [[0.85, 1], [0.55, 1], [0.95, 0.72], [0.55, 0.82], [1, 0.88]];
/** Points with a lower score are not drawn: they are guesses about hidden parts. */
const POINT_SCORE = 0.3;
/** How long a tail is; it ends where its object was unseen for longer than the gap. */
const TAIL_NS = 2e9;
const GAP_NS = 1e9;
/** How much wider than a box's line a tail is at its box. */
const TAIL_WIDTH = 2;

/** The colour of a detection: of its track, because people follow an object by it; without a track, of its class. */
function colorOf({ track, class_id }) {
  return color(track?.id ?? class_id);
}

/** Hues step by the golden angle, so that neighbouring ids differ. */
function color(id) {
  const hue = (0.38 + id * 0.618033988749895) % 1;
  const [saturation, value] = SHADES[Math.floor(id / 8) % 5];
  return [5, 3, 1].map((n) => {
    const k = (n + hue * 6) % 6;
    return Math.round((value - value * saturation * Math.min(Math.max(Math.min(k, 4 - k), 0), 1)) * 255);
  });
}

/** Returns black or white, whichever has more contrast. */
function textColor(color) {
  const [r, g, b] = color.map((byte) => {
    const value = byte / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff';
}

/** Returns where a frame of `width` by `height` goes in a canvas: scaled to fit, centred. */
export function fitting(canvas, width, height) {
  const scale = Math.min(canvas.width / width, canvas.height / height);
  return { scale, left: (canvas.width - width * scale) / 2, top: (canvas.height - height * scale) / 2 };
}

/** Returns the way from a camera's frame to its picture, which is turned clockwise, then mirrored: the picture's size, `to` it, and back `from` it. */
export function turning({ width, height, rotate = 0, flip = null }) {
  const quarters = (x, y, w, h, degrees) => [[x, y], [h - y, x], [w - x, h - y], [y, w - x]][(degrees / 90) % 4];
  const [wide, high] = rotate % 180 ? [height, width] : [width, height];
  const mirror = ([x, y]) => [flip === 'horizontal' ? wide - x : x, flip === 'vertical' ? high - y : y];
  return { width: wide, height: high, to: (x, y) => mirror(quarters(x, y, width, height, rotate)), from: (x, y) => quarters(...mirror([x, y]), wide, high, 360 - rotate) };
}

/** Returns a message in the pixels of a turned picture. */
export function turned(message, { rotate, flip }) {
  if (!rotate && !flip) return message;
  const { width, height, to: at } = turning({ ...message.frame, rotate, flip });
  const detections = message.detections.map(({ ...each }) => {
    const { box, oriented, keypoints, segments } = each;
    if (box) {
      const [[a, b], [c, d]] = [at(box.x, box.y), at(box.x + box.width, box.y + box.height)];
      each.box = { x: Math.min(a, c), y: Math.min(b, d), width: Math.abs(a - c), height: Math.abs(b - d) };
    }
    if (oriented) each.oriented = { corners: oriented.corners.map((corner) => at(...corner)) };
    each.keypoints = keypoints?.map(({ x, y, score }) => {
      [x, y] = at(x, y);
      return { x, y, score };
    });
    each.segments = segments?.map((ring) => ring.flatMap((x, i) => (i % 2 ? [] : at(x, ring[i + 1]))));
    return each;
  });
  return { ...message, frame: { width, height }, detections };
}

/** Pictures narrower than this, in pixels of the page, have boxes without labels. */
const LABELS_FROM = 300;
/** In pictures narrower than this, as on a phone, labels are smaller and stay off what is in the boxes. */
const ROOMY_FROM = 640;
/** The part of a box that such a label may hide. */
const MOST_HIDDEN = 0.1;

/**
 * Draws a message's detections. `place` is from [`fitting`]; `unit` is a pixel of the page, so that lines have the same width everywhere.
 * Tails are from `messages`, the camera's recent ones, oldest first.
 */
export function drawDetections(context, message, place, unit, messages = []) {
  const { detections, model, attributes } = message;
  const small = context.canvas.width / unit < LABELS_FROM;
  const narrow = context.canvas.width / unit < ROOMY_FROM;
  const font = (narrow ? 10 : 11.5) * unit;
  const line = small ? 1.5 * unit : 2 * unit;
  context.font = `600 ${font}px system-ui, sans-serif`;
  context.textBaseline = 'middle';
  for (const detection of [...detections].reverse()) drawMask(context, detection, place);
  const tails = tailsOf(message, messages);
  for (const { track } of [...detections].reverse()) if (track) drawTail(context, tails.get(track.id), color(track.id), place, { line, unit });
  const labels = [];
  // The best last, on top.
  for (const detection of [...detections].reverse()) {
    const color = colorOf(detection);
    const css = `rgb(${color.join(' ')})`;
    if (detection.oriented) {
      context.beginPath();
      for (const [x, y] of detection.oriented.corners) context.lineTo(place.left + x * place.scale, place.top + y * place.scale);
      context.closePath();
      context.lineJoin = 'round';
      strokeWithRim(context, { line, unit, css });
    } else if (detection.box) {
      const { left, top, width, height } = onCanvas(detection.box, place);
      const inner = [left + line / 2, top + line / 2, Math.max(1, width - line), Math.max(1, height - line)];
      context.lineJoin = 'round';
      context.lineWidth = line + 2 * unit;
      context.strokeStyle = 'rgb(0 0 0 / .45)';
      context.strokeRect(...inner);
      context.lineWidth = line;
      context.strokeStyle = css;
      context.strokeRect(...inner);
    }
    drawSkeleton(context, detection.keypoints ?? [], model?.skeleton ?? [], place, { line, unit, css });
    for (const point of detection.keypoints ?? []) {
      if ((point.score ?? 1) < POINT_SCORE) continue;
      context.beginPath();
      context.arc(place.left + point.x * place.scale, place.top + point.y * place.scale, 3 * unit, 0, 7);
      context.fillStyle = css;
      context.strokeStyle = '#000';
      context.lineWidth = unit;
      context.fill();
      context.stroke();
    }
    labels.unshift({ detection, color, css });
  }
  if (small) return;
  const boxes = narrow ? detections.filter(({ box }) => box).map(({ box }) => onCanvas(box, place)) : [];
  const placed = [];
  for (const label of labels) placeLabel(context, label, place, { font, line, unit, boxes }, placed);
  // Every name has its place before a score takes room.
  if (shows('scores')) for (const label of placed) addScore(context, label, boxes, placed);
  for (const label of placed) drawLabel(context, label, unit);
  drawAttributes(context, attributes ?? {}, place, { font, unit });
}

/** The colours of lines and zones, which no track has. */
const RULE = { closed: ['#7fe9ff', [127, 233, 255]], open: ['#ff9df0', [255, 157, 240]] };
/** The most letters of a label of a line or zone. */
const RULE_LETTERS = 28;

/** Draws a camera's lines and zones on its picture; `turn` is the camera's, `frame` the size of the turned picture. */
export function drawRules(context, rules, turn, frame, place, unit) {
  const [width, height] = turn.rotate % 180 ? [frame.height, frame.width] : [frame.width, frame.height];
  const { to } = turning({ ...turn, width, height });
  const on = ([x, y]) => to(x, y).map((part, axis) => [place.left, place.top][axis] + part * place.scale);
  const small = context.canvas.width / unit < LABELS_FROM;
  const font = (context.canvas.width / unit < ROOMY_FROM ? 10 : 11.5) * unit;
  context.font = `600 ${font}px system-ui, sans-serif`;
  context.textBaseline = 'middle';
  const labels = [];
  for (const { name, points, sides, counts, inside } of rules) {
    const [css, color] = sides ? RULE.open : RULE.closed;
    const pixels = points.map(([x, y]) => [x * width, y * height]);
    const spots = pixels.map(on);
    context.beginPath();
    for (const spot of spots) context.lineTo(...spot);
    if (!sides) context.closePath();
    context.lineJoin = 'round';
    context.setLineDash(sides ? [] : [7 * unit, 5 * unit]);
    strokeWithRim(context, { line: (small ? 1.5 : 2) * unit, unit, css });
    context.setLineDash([]);
    if (small) continue;
    const [pad, tall] = [4 * unit, Math.round(font * 1.5)];
    // The middle of a label, or for a side the edge of the line that it is beside.
    const label = (text, [x, y], [right, down] = [0, 0]) => {
      const short = text.length > RULE_LETTERS ? `${text.slice(0, RULE_LETTERS - 1)}…` : text;
      const wide = Math.min(context.canvas.width, context.measureText(short).width + 2 * pad);
      const far = 5 * unit + (Math.abs(right) * wide + Math.abs(down) * tall) / 2;
      const inside = (value, most) => Math.max(0, Math.min(value, most));
      const left = inside(x + right * far - wide / 2, context.canvas.width - wide);
      const each = { css, color, text: short, pad, left, top: inside(y + down * far - tall / 2, context.canvas.height - tall), width: wide, height: tall };
      // Below those that are there already, as far as there is room.
      while (labels.some((other) => common(each, other) > 0) && each.top + 2 * tall < context.canvas.height) each.top += tall;
      labels.push(each);
    };
    if (!sides) {
      const top = spots.reduce((a, b) => (b[1] < a[1] ? b : a));
      label(inside === undefined ? name : `${name} ${inside}`, top, [0, 1]);
      continue;
    }
    const { at, left } = middle(pixels);
    const [[x, y], [toX, toY]] = [at, [at[0] + left[0], at[1] + left[1]]].map(on);
    const away = [(toX - x) / place.scale, (toY - y) / place.scale];
    sides.forEach((side, which) => label(counts[which] === undefined ? side : `${side} ${counts[which]}`, [x, y], which ? away.map((part) => -part) : away));
    const [begin, next] = spots;
    // Before its first point, so that the name is on no side.
    const long = Math.hypot(begin[0] - next[0], begin[1] - next[1]) || 1;
    label(name, begin, [(begin[0] - next[0]) / long, (begin[1] - next[1]) / long]);
  }
  for (const each of labels) drawLabel(context, each, unit);
}

/** Draws a grid of the times that objects were somewhere: red where they were longest. `since` is a text. */
export function drawHeat(context, { columns, rows, seconds, most, since }, place, frame, unit) {
  const grid = Object.assign(document.createElement('canvas'), { width: columns, height: rows });
  const pixels = new ImageData(columns, rows);
  seconds.forEach((time, at) => {
    // The square root, so that short stays are visible.
    const part = Math.sqrt(time / (most || 1));
    pixels.data.set([255, 220 * (1 - part), 0, 210 * Math.min(1, part * 1.5)], at * 4);
  });
  grid.getContext('2d').putImageData(pixels, 0, 0);
  context.drawImage(grid, place.left, place.top, frame.width * place.scale, frame.height * place.scale);
  if (context.canvas.width / unit < ROOMY_FROM) return;
  const font = 10 * unit;
  context.font = `600 ${font}px system-ui, sans-serif`;
  context.textBaseline = 'middle';
  const [pad, height] = [4 * unit, Math.round(font * 1.5)];
  const text = `Where objects were since ${since}`;
  const width = Math.min(context.canvas.width, context.measureText(text).width + 2 * pad);
  drawLabel(context, { css: '#000', color: [0, 0, 0], text, pad, left: context.canvas.width - place.left - width, top: context.canvas.height - place.top - height, width, height }, unit);
}

/** Returns an attribute's value as text. */
function attributeText({ label, score, labels, value }) {
  if (labels) return labels.map((each) => each.label).join(', ') || 'none';
  if (label === undefined) return String(value);
  return shows('scores') ? `${label} ${Math.round(score * 100)}\u202f%` : label;
}

/** Draws a line of the frame's attributes at the lower left, where no label of a classifier stands. */
function drawAttributes(context, attributes, place, { font, unit }) {
  const text = Object.entries(attributes).map(([name, each]) => `${name}: ${attributeText(each)}`).join(' · ');
  if (!text) return;
  const [pad, height] = [4 * unit, Math.round(font * 1.5)];
  const width = Math.min(context.canvas.width - place.left, context.measureText(text).width + 2 * pad);
  const top = context.canvas.height - place.top - height;
  drawLabel(context, { css: '#000', color: [0, 0, 0], text, pad, left: place.left, top, width, height }, unit);
}

/** Fills the detection's outlines; holes are outlines inside of others. */
function drawMask(context, detection, place) {
  context.beginPath();
  for (const ring of detection.segments ?? []) {
    for (let i = 0; i < ring.length; i += 2) context.lineTo(place.left + ring[i] * place.scale, place.top + ring[i + 1] * place.scale);
    context.closePath();
  }
  context.fillStyle = `rgb(${colorOf(detection).join(' ')} / .45)`;
  context.fill('evenodd');
}

/** Returns where the bottom centre of each tracked box was, by track, newest point first. Age 1 is the end of the longest tail. */
function tailsOf({ detections, frame, monotonic_ns }, messages) {
  const tails = new Map(detections.filter(({ track }) => track).map(({ track }) => [track.id, []]));
  if (tails.size === 0) return tails;
  for (const earlier of [...messages].reverse()) {
    const age = (monotonic_ns - earlier.monotonic_ns) / TAIL_NS;
    // The picture may be older than the newest messages.
    if (age < 0) continue;
    if (age > 1 || earlier.frame.width !== frame.width || earlier.frame.height !== frame.height) break;
    for (const { track, box } of earlier.detections) {
      const tail = tails.get(track?.id);
      if (tail && box && age - (tail.at(-1)?.age ?? 0) <= GAP_NS / TAIL_NS) tail.push({ x: box.x + box.width / 2, y: box.y + box.height, age });
    }
  }
  return tails;
}

/** Draws where an object came from: wide at its box, and thinner with age. All rims first; they are opaque, because neighbours overlap. */
function drawTail(context, tail, color, place, { line, unit }) {
  context.lineCap = 'round';
  for (const [grown, css] of [[2 * unit, '#000'], [0, `rgb(${color.join(' ')})`]]) {
    context.strokeStyle = css;
    for (let at = tail.length - 1; at > 0; at -= 1) {
      const [newer, older] = [tail[at - 1], tail[at]];
      context.lineWidth = (TAIL_WIDTH * line + grown) * (1 - newer.age);
      context.beginPath();
      context.moveTo(place.left + older.x * place.scale, place.top + older.y * place.scale);
      context.lineTo(place.left + newer.x * place.scale, place.top + newer.y * place.scale);
      context.stroke();
    }
  }
}

/** Draws the lines between points that both pass, all of their rims first. */
function drawSkeleton(context, points, skeleton, place, { line, unit, css }) {
  const visible = (point) => point && (point.score ?? 1) >= POINT_SCORE;
  const lines = skeleton.map(([a, b]) => [points[a], points[b]]).filter((ends) => ends.every(visible));
  if (lines.length === 0) return;
  context.beginPath();
  for (const [from, to] of lines) {
    context.moveTo(place.left + from.x * place.scale, place.top + from.y * place.scale);
    context.lineTo(place.left + to.x * place.scale, place.top + to.y * place.scale);
  }
  context.lineCap = 'round';
  strokeWithRim(context, { line, unit, css });
}

/** Strokes the path with a dark rim, which shows on a background of the same colour. */
function strokeWithRim(context, { line, unit, css }) {
  context.lineWidth = line + 2 * unit;
  context.strokeStyle = 'rgb(0 0 0 / .45)';
  context.stroke();
  context.lineWidth = line;
  context.strokeStyle = css;
  context.stroke();
}

function onCanvas({ x, y, width, height }, place) {
  return { left: place.left + x * place.scale, top: place.top + y * place.scale, width: width * place.scale, height: height * place.scale };
}

/** Adds the label's name to those that are `placed`, in the first spot that no other label has, and where it hides none of `boxes`. */
function placeLabel(context, { detection, color, css }, place, { font, line, unit, boxes }, placed) {
  const room = context.canvas.width;
  const height = Math.round(font * 1.5);
  const box = detection.box;
  const pad = 4 * unit;
  const text = detection.track ? `${detection.label} #${detection.track.id}` : detection.label;
  const width = Math.min(room, context.measureText(text).width + 2 * pad);
  let spots;
  if (box) {
    const { left, top, height: high } = onCanvas(box, place);
    const bottom = top + high;
    spots = [[left, top - height], [left, top], [left, bottom - height], [left, bottom], [left, (top + bottom - height) / 2]];
  } else {
    // A classifier's labels stand one below the other.
    spots = [[place.left + pad, place.top + pad + placed.length * (height + line)]];
  }
  const inside = ([left, top]) => top >= 0 && top + height <= context.canvas.height && left >= 0;
  const label = ([left, top]) => ({
    detection, color, css, text, pad, width, height,
    left: Math.min(Math.max(0, left), room - width),
    top: Math.min(Math.max(0, top), context.canvas.height - height),
  });
  const found = spots.filter(inside).map(label).find((candidate) => isFree(candidate, boxes, placed));
  // Better no label than one over another.
  if (found) placed.push(found);
  else if (placed.length === 0 && boxes.length === 0) placed.push(label(spots[0]));
}

/** Makes the label wider by its score, if there is room beside the others. */
function addScore(context, label, boxes, placed) {
  const text = `${label.text} ${Math.round(label.detection.score * 100)}\u202f%`;
  const width = context.measureText(text).width + 2 * label.pad;
  const left = Math.min(label.left, context.canvas.width - width);
  const wide = { ...label, left, width };
  if (left >= 0 && isFree(wide, boxes, placed.filter((other) => other !== label))) Object.assign(label, { text, left, width });
}

/** Whether a label lies over none that are placed, and leaves the boxes in sight. */
function isFree(label, boxes, placed) {
  return !placed.some((other) => common(label, other) > 0) && !boxes.some((box) => common(label, box) > MOST_HIDDEN * box.width * box.height);
}

/** Returns the area that two rectangles have in common. */
function common(a, b) {
  const width = Math.min(a.left + a.width, b.left + b.width) - Math.max(a.left, b.left);
  const height = Math.min(a.top + a.height, b.top + b.height) - Math.max(a.top, b.top);
  return Math.max(0, width) * Math.max(0, height);
}

function drawLabel(context, { css, color, text, pad, left, top, width, height }, unit) {
  context.fillStyle = css;
  context.fillRect(left, top, width, height);
  context.fillStyle = textColor(color);
  context.fillText(text, left + pad, top + height / 2 + unit * 0.5, width - 2 * pad);
}
