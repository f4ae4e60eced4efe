// The daemon as a whole: the row of figures at the top, the machine, the models, the sinks.

import { byId, element, write, attribute, show, keep, facts } from './dom.js';
import { count, figures, millis, bytes, duration, percent, plural, clock } from './format.js';
import { droppedInAll } from './cameras.js';

/** CPU use between two status reports. */
let before = null;
let cpu = null;

export function showMachine(status, history) {
  measureCpu(status);
  const hottest = hot(status.jetson);
  glance(status, history, hottest);
  facts(byId('machine'), machine(status, hottest));
  things(byId('models'), status.models, model, 'No camera uses a model.');
  things(byId('sinks'), status.sinks, sink, 'No sink is configured: detections go to this page and the API only.');
  about(status);
}

function measureCpu({ at, process }) {
  const now = { at: Date.parse(at), seconds: process.cpu_seconds, pid: process.pid };
  if (before && before.pid === now.pid && now.at > before.at) cpu = ((now.seconds - before.seconds) * 1000) / (now.at - before.at);
  else cpu = null;
  before = now;
}

function hot(jetson) {
  const zones = Object.entries(jetson?.temperatures_c ?? {}).sort((a, b) => b[1].last - a[1].last);
  return zones.length > 0 ? { zone: zones[0][0], ...zones[0][1] } : null;
}

function heat(celsius) {
  if (celsius >= 95) return 'bad';
  return celsius >= 85 ? 'warn' : null;
}

/** Shows figures, [name, number, unit, level]; leaves out those without a number. */
function glance(status, history, hottest) {
  const { cameras, sinks, gpu, process } = status;
  const streaming = cameras.filter((camera) => camera.phase === 'streaming').length;
  const away = cameras.some((camera) => camera.phase === 'waiting' || camera.phase === 'failed');
  const dropped = cameras.reduce((sum, camera) => sum + droppedInAll(camera), 0);
  const published = cameras.reduce((sum, camera) => sum + camera.published, 0);
  const age = history.ageOfAll();
  const levels = sinks.map((sink) => sinkState(sink).level);
  const out = levels.filter((level) => level !== 'ok').length;
  const rows = [
    ['Cameras', String(streaming), ` of ${cameras.length}`, away ? 'warn' : null],
    ['Frames', figures(cameras.reduce((sum, camera) => sum + camera.fps, 0)), ' fps'],
    ['Age p99', age === null ? null : millis(age), ' ms'],
    ['Dropped', percent(dropped / Math.max(1, dropped + published)), ` ${count(dropped)}`, dropped > 0.01 * published ? 'warn' : null],
    ['Processor', cpu === null ? null : percent(cpu), ' of a core'],
    ['Memory', ...bytes(process.resident_bytes).split(/(?= )/)],
    ['GPU', (gpu?.load_percent ?? null) !== null ? `${Math.round(gpu.load_percent)} %` : null, ''],
    ['Hottest', hottest && `${Math.round(hottest.last)} °C`, hottest && ` ${hottest.zone}`, hottest && heat(hottest.last)],
    ['Sinks', sinks.length ? String(sinks.length - out) : null, ` of ${sinks.length}`, worst(levels)],
  ];
  const make = ([name]) => element('div', {}, element('dt', { textContent: name }), element('dd', {}, element('span'), element('small')));
  keep(byId('glance'), rows.filter(([, value]) => value !== null), ([name]) => name, make, (node, [, value, unit, level]) => {
    write(node.lastChild.firstChild, value);
    write(node.lastChild.lastChild, unit ?? '');
    attribute(node, 'data-level', level ?? null);
  });
}

function machine({ process, gpu, jetson, http, reloads, settings, uptime_s, not_ready }, hottest) {
  const zones = Object.entries(jetson?.temperatures_c ?? {}).map(([zone, { last, max }]) => [`${zone} temperature`, `${last.toFixed(0)} °C, at most ${max.toFixed(0)}`, heat(last)]);
  const last = reloads.last;
  return [
    ['Running for', duration(uptime_s)],
    ['Not ready', not_ready.join('; '), 'warn'],
    ['Memory', `${bytes(process.resident_bytes)}, at most ${bytes(process.peak_resident_bytes)}`],
    ['Processor', `${duration(process.cpu_seconds)} in all`],
    ['Threads', count(process.threads)],
    ['Descriptors', `${count(process.descriptors)} of ${count(process.descriptors_limit)}`],
    ['Power mode', jetson?.power_mode],
    ['GPU busy', gpu && gpu.load_percent !== null ? `${gpu.load_percent.toFixed(0)} %` : null],
    ['GPU clock', gpu && gpu.clock_mhz !== null ? `${gpu.clock_mhz} MHz` : null],
    ...zones,
    ['Throttled', jetson?.throttled ? `${plural(jetson.throttled, 'time')}, ${duration(jetson.throttled_seconds)}` : null, 'warn'],
    ['Temperature', hottest || jetson ? null : 'unknown: not a Jetson'],
    ['HTTP', `${plural(http.connections, 'connection')}, ${plural(http.requests, 'request')}`],
    ['Stream readers', count(http.websocket_readers + http.event_readers)],
    ['Settings', settings && `${settings.name}, version ${settings.version}`],
    ['Reloads', reloads.applied + reloads.refused ? `${count(reloads.applied)} applied, ${count(reloads.refused)} refused` : null],
    ['Last reload', last ? `${clock(last.at)}: ${last.applied ? 'applied' : 'refused'}` : null, last && !last.applied ? 'warn' : null],
  ];
}

/** Shows each model or sink: its name, its state, a sentence if something is wrong, its facts. */
function things(parent, list, tell, none) {
  const make = () => {
    const head = element('div', { className: 'head' }, element('h3'), element('span', { className: 'chip' }));
    return element('div', { className: 'thing' }, head, element('p', { className: 'reason' }), element('dl', { className: 'facts spread' }));
  };
  // Two sinks may have one name's first letters, never the name.
  keep(parent, list.length > 0 ? list : [null], (thing) => thing?.name ?? '', (thing) => (thing ? make() : element('p', { className: 'empty', textContent: none })), (node, thing) => {
    if (!thing) return;
    const { state, level, reason, rows } = tell(thing);
    const [head, sentence, list] = node.children;
    write(head.firstChild, thing.name);
    write(head.lastChild, state);
    attribute(head.lastChild, 'data-level', level);
    show(sentence, Boolean(reason));
    write(sentence, reason ?? '');
    attribute(sentence, 'data-level', level);
    facts(list, rows);
  });
}

/** What is done about another version than that in use, in words. */
const STEPS = {
  up_to_date: 'none',
  unreachable: 'cannot look for them',
  waiting: 'waiting for',
  fetching: 'fetching',
  building: 'building its engine',
  proving: 'proving',
  comparing: 'comparing',
  watching: 'in use, and watched',
  refused: 'refused',
  went_back: 'went back from',
};

function model(it) {
  const { gpu, bundle } = it;
  const { step, version, percent, newest, source, reason } = bundle?.rollout ?? {};
  const levels = { backoff: 'bad', ended: 'quiet' };
  const failed = ['unreachable', 'refused', 'went_back'].includes(step);
  const activity = { idle: 'waiting for frames', looking: 'running', publishing: 'running', backoff: 'failed, is loaded again' };
  return {
    state: activity[it.activity] ?? it.activity,
    level: levels[it.activity] ?? (failed ? 'warn' : 'ok'),
    reason,
    rows: [
      ['Bundle', bundle && `${bundle.name}, version ${bundle.version}`],
      ['In use since', bundle?.since && new Date(bundle.since).toLocaleString()],
      ['Signed by', bundle?.signed_by],
      ['Newer versions', step && [STEPS[step] ?? step, version, percent !== undefined && `${percent} %`].filter(Boolean).join(' '), failed ? 'warn' : null],
      ['Newest', newest && String(newest)],
      ['Source', source],
      ['Engine', it.backend],
      ['File', it.file],
      ['SHA-256', it.sha256 ? `${it.sha256.slice(0, 12)}…` : null],
      ['Input', it.input],
      ['Frame memory', it.memory],
      ['Runs on', it.on ? `detections of ${it.on}` : null],
      ['Runs', count(it.runs)],
      ['Detections', it.on ? count(it.crops) : null],
      ['Detections left out', it.crops_left_out ? count(it.crops_left_out) : null, 'warn'],
      ['Errors', it.errors ? count(it.errors) : null, 'warn'],
      ['Loaded again', it.rebuilds ? plural(it.rebuilds, 'time') : null, 'warn'],
      ['CUDA graph', gpu ? `${count(gpu.graph_runs)} runs, ${count(gpu.single_runs)} call by call` : null],
      ['Launch', gpu ? `p50 ${millis(gpu.launch_us_p50)} ms, p99 ${millis(gpu.launch_us_p99)} ms` : null],
      ['Copied for the GPU', gpu?.copied_bytes ? bytes(gpu.copied_bytes) : null],
    ],
  };
}

/** Returns the worse of the levels warn and bad; null if there is none. */
export function worst(levels) {
  return ['bad', 'warn'].find((level) => levels.includes(level)) ?? null;
}

/** Returns a sink's state and its level: ok, warn if its output or its spool cannot be written, or bad if both cannot. */
export function sinkState({ outage, connected, spool }) {
  if (!outage && connected !== false) {
    if (spool?.outage) return { state: 'Connected, messages are not kept on disk', level: 'warn' };
    return { state: connected ? 'Connected' : 'Writing', level: 'ok' };
  }
  // A full spool drops about 1/32 at a time.
  const keeps = spool && !spool.outage && spool.bytes <= 0.9 * spool.limit_bytes;
  return keeps ? { state: 'Waiting, messages are kept on disk', level: 'warn' } : { state: 'Outage', level: 'bad' };
}

function sink(it) {
  const { spool } = it;
  const { state, level } = sinkState(it);
  const full = it.capacity > 0 && it.waiting > it.capacity / 2;
  return {
    state,
    level,
    reason: [it.outage, spool?.outage && `the spool cannot be written: ${spool.outage}`].filter(Boolean).join('; '),
    rows: [
      ['Kind', it.kind],
      ['To', it.to],
      ['Queue', `${count(it.waiting)} of ${count(it.capacity)}`, full ? 'warn' : null],
      ['Written', count(it.written)],
      ['Lost', it.lost ? count(it.lost) : '0', it.lost ? 'bad' : null],
      ['Skipped by max_rate', it.thinned ? count(it.thinned) : null],
      ['Reconnected', it.reconnects ? plural(it.reconnects, 'time') : null],
      ['Sent again', it.resent ? count(it.resent) : null],
      ['Readers', it.kind === 'unix' ? count(it.readers) : null],
      ['Lost by slow readers', it.reader_lost ? plural(it.reader_lost, 'message') : null, 'warn'],
      ['Spool', spool ? `${plural(spool.records, 'message')}, ${bytes(spool.bytes)} of ${bytes(spool.limit_bytes)}` : null],
      ['Dropped by the full spool', spool?.dropped ? count(spool.dropped) : null, 'bad'],
    ],
  };
}

function about({ version, target, config }) {
  write(byId('about'), `visiond ${version} for ${target} at ${location.host}, configured by ${config}`);
}
