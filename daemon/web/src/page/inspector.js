// The details of the chosen camera: its last two minutes, latency by stage, dropped frames by cause.

import { byId, element, write, attribute, show, keep, facts, drawn, path } from './dom.js';
import { count, figures, millis, bytes, percent, plural } from './format.js';
import { STAGES, POINTS } from './history.js';
import { phaseOf, droppedInAll, droppedPart } from './cameras.js';

const WIDTH = 240;
const HEIGHT = 36;
/** Labels in the table of detections. */
const MOST_LABELS = 6;
const CAUSES = {
  driver: 'lost by the driver or the source program',
  corrupt: 'damaged or truncated',
  overload: 'replaced by a newer frame while the model was busy',
  failed: 'preprocess or inference failed',
  unmasked: 'a privacy mask could not be applied',
};
const STAGE_TITLES = {
  capture: 'From the frame’s timestamp to its arrival in the mailbox',
  queue: 'Waiting in the mailbox',
  preprocess: 'Frame to tensor',
  infer: 'Inference',
  postprocess: 'Raw outputs to detections',
  total: 'From capture to publishing: the age of the message',
};

export class Inspector {
  #name = null;
  #recent = true;
  #redraw = () => {};

  constructor() {
    const choices = [byId('latency-recent'), byId('latency-all')];
    for (const button of choices) {
      button.addEventListener('click', () => {
        this.#recent = button === choices[0];
        for (const each of choices) attribute(each, 'aria-pressed', String(each === button));
        this.#redraw();
      });
    }
  }

  /** Shows another camera. */
  choose(name, byHand) {
    this.#name = name;
    show(byId('inspector'), name !== null);
    write(byId('inspector-title'), name ?? '');
    this.#redraw();
    // On a phone the large picture may be out of sight, above.
    if (byHand) byId('large').scrollIntoView({ block: 'nearest', behavior: 'smooth' });
  }

  status(status, history, rules) {
    this.#redraw = () => this.#draw(status, history, rules.of(this.#name));
    this.#redraw();
  }

  #draw(status, history, rules) {
    const camera = status.cameras.find((each) => each.name === this.#name);
    if (!camera) return;
    const [word, level] = phaseOf(camera);
    write(byId('inspector-phase'), word);
    attribute(byId('inspector-phase'), 'data-level', level);
    show(byId('inspector-reason'), Boolean(camera.reason));
    attribute(byId('inspector-reason'), 'data-level', level);
    write(byId('inspector-reason'), camera.reason ?? '');
    trends(history.points(camera.name));
    latency(STAGES.map((stage) => [stage, this.#recent ? history.stage(camera.name, stage) : camera.stages[stage]]));
    const recent = history.detections(camera.name, performance.now());
    // Messages are forgotten by the second.
    const span = recent.seconds >= 59 ? 'last minute' : `last ${Math.round(recent.seconds)} s`;
    write(byId('latency-recent'), span);
    write(byId('detections-span'), span);
    detections(camera, recent);
    drops(camera);
    for (const id of ['rules-title', 'rules']) show(byId(id), rules.length > 0);
    facts(byId('rules'), rules.map((rule) => [rule.name, numbersOf(rule)]));
    facts(byId('facts'), rows(camera, history.tracks(camera.name)));
    links(camera.name);
  }
}

function trends(points) {
  const now = points.at(-1);
  write(byId('trend-fps'), now ? figures(now.fps) : '–');
  write(byId('trend-age'), now && now.age !== null ? `${millis(now.age)} ms` : '–');
  line(byId('trend-fps-line'), points.map((point) => point.fps));
  line(byId('trend-age-line'), points.map((point) => point.age));
}

/** Draws a line with the newest value at the right, scaled to the largest value. */
function line(svg, values) {
  const most = Math.max(...values.filter((value) => value !== null), 0) * 1.15;
  const spots = [];
  values.forEach((value, at) => {
    if (value === null || most === 0) return;
    const x = WIDTH - ((values.length - 1 - at) * WIDTH) / (POINTS - 1);
    spots.push(`${x.toFixed(1)} ${(HEIGHT - (value / most) * HEIGHT).toFixed(1)}`);
  });
  if (spots.length < 2) return svg.replaceChildren();
  const first = spots[0].split(' ')[0];
  svg.replaceChildren(path('area', `M${first} ${HEIGHT}L${spots.join('L')}V${HEIGHT}Z`), path('line', `M${spots.join('L')}`));
}

function latency(stages) {
  const bounds = stages[0][1]?.buckets.map(([bound]) => bound) ?? [];
  write(byId('latency-least'), bounds.length > 1 ? time(bounds[0]) : '');
  write(byId('latency-most'), bounds.length > 1 ? time(bounds.at(-2)) : '');
  const make = ([stage]) => {
    const svg = drawn('svg', { viewBox: `0 0 ${WIDTH} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    const cells = [element('td', {}, svg), element('td'), element('td'), element('td')];
    return element('tr', { className: stage }, element('th', { scope: 'row', textContent: stage, title: STAGE_TITLES[stage] }), ...cells);
  };
  keep(byId('latency').tBodies[0], stages, ([stage]) => stage, make, (row, [, times]) => {
    row.cells[1].firstChild.replaceChildren(...(times?.count ? bars(times) : []));
    const none = !times?.count;
    [times?.p50_us, times?.p99_us, times?.max_us].forEach((us, at) => write(row.cells[2 + at], none ? '–' : millis(us)));
  });
}

/** Draws one bar per bucket. Its height is the square root of its share of frames, so that rare ones stay visible. */
function bars({ count: frames, buckets }) {
  const wide = WIDTH / buckets.length;
  const drawn = buckets.map(([, inIt], at) => {
    if (inIt === 0) return '';
    const height = Math.max(1.5, Math.sqrt(inIt / frames) * 20).toFixed(1);
    return `M${(at * wide + 0.6).toFixed(1)} 20v-${height}h${(wide - 1.2).toFixed(1)}v${height}z`;
  });
  return [path('bars', drawn.join(''))];
}

function time(us) {
  if (us < 1000) return `${us} µs`;
  return us < 1_000_000 ? `${us / 1000} ms` : `${us / 1_000_000} s`;
}

/** Shows detections by label: of the recent past, the frames that have some, and since the start. */
function detections(camera, recent) {
  show(byId('no-detections'), camera.labels.length === 0);
  show(byId('detections'), camera.labels.length > 0);
  const rows = camera.labels.slice(0, MOST_LABELS).map(({ label, total }) => [label, recent.labels.get(label), total]);
  const others = camera.labels.length - rows.length;
  write(byId('detections-others'), others > 0 ? `and ${plural(others, 'more label')}` : '');
  const make = ([label]) => element('tr', {}, element('th', { scope: 'row', textContent: label }), element('td'), element('td'), element('td'));
  keep(byId('detections').tBodies[0], rows, ([label]) => label, make, (row, [, seen, total]) => {
    const texts = [count(seen?.detections ?? 0), `${count(seen?.frames ?? 0)} of ${count(recent.frames)}`, count(total)];
    texts.forEach((text, at) => write(row.cells[1 + at], text));
  });
}

function drops(camera) {
  const causes = Object.entries(camera.dropped).filter(([, frames]) => frames > 0).sort((a, b) => b[1] - a[1]);
  write(byId('drops-total'), causes.length > 0 ? `${count(droppedInAll(camera))} (${percent(droppedPart(camera))})` : '');
  attribute(byId('drops-total'), 'data-level', droppedPart(camera) > 0.01 ? 'warn' : null);
  show(byId('no-drops'), causes.length === 0);
  show(byId('drops'), causes.length > 0);
  const most = Math.max(1, ...causes.map(([, frames]) => frames));
  const make = ([cause]) => {
    const track = element('span', { className: 'track', 'aria-hidden': 'true' }, element('span'));
    return element('tr', {}, element('th', { scope: 'row', textContent: cause, title: CAUSES[cause] ?? '' }), element('td', {}, track), element('td'));
  };
  keep(byId('drops').tBodies[0], causes, ([cause]) => cause, make, (row, [, frames]) => {
    row.cells[1].firstChild.firstChild.style.width = `${(100 * frames) / most}%`;
    write(row.cells[2], count(frames));
  });
}

function rows(camera, tracks) {
  const copied = camera.captured > 0 && camera.copied_bytes > 0 ? `${bytes(camera.copied_bytes / camera.captured)} per frame` : null;
  return [
    ['Model', camera.model],
    ['Frame', camera.width ? `${camera.width} × ${camera.height} ${camera.format}` : null],
    ['Driver’s buffers', camera.io],
    ['Copied', copied],
    ['Frames captured', count(camera.captured)],
    ['Messages', count(camera.published)],
    ['Tracks now', tracks === null ? null : count(tracks)],
    ['Reopened', camera.restarts ? plural(camera.restarts, 'time') : null],
    ['Errors', camera.errors ? count(camera.errors) : null, 'warn'],
    ['Preview', camera.preview ? previewText(camera.preview) : null, camera.preview?.reason ? 'warn' : undefined],
    ['Watched by', camera.watchers ? plural(camera.watchers, 'client') : null],
    ['Stored pictures', camera.pictures ? count(camera.pictures.written) : null],
  ];
}

/** Returns what a line or zone has counted; a dash before its first event. */
function numbersOf({ sides, counts, inside, visits }) {
  if (sides) return sides.map((side, at) => `${side} ${counts[at] === undefined ? '–' : count(counts[at])}`).join(', ');
  return visits === undefined ? '–' : `${count(inside)} inside, ${plural(visits, 'visit')}`;
}

/** Returns what the stream that people watch does. */
function previewText({ phase, reason, width, height }) {
  if (reason) return reason;
  return width ? `${width} × ${height}` : phase;
}

function links(name) {
  const at = `cameras/${encodeURIComponent(name)}`;
  const targets = [['Snapshot', `${at}/snapshot.jpg?overlay=1`], ['Video', `${at}/stream.mjpeg?overlay=1`], ['Detections', `api/v1/${at}/detections`]];
  keep(byId('links'), targets, ([text, href]) => text + href, ([textContent, href]) => element('a', { textContent, href }), () => {});
}
