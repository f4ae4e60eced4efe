// The page: passes what the daemon sends to the parts that show it.

import { byId, write, attribute, show, speak } from './dom.js';
import { duration } from './format.js';
import { startTheme, startSwitches } from './settings.js';
import { History } from './history.js';
import { followStatus, Stream } from './connection.js';
import { Cameras } from './cameras.js';
import { Inspector } from './inspector.js';
import { Masks } from './masks.js';
import { Rules } from './rules.js';
import { Events } from './events.js';
import { showMachine, sinkState, worst } from './machine.js';
import { Log } from './log.js';
import { startReload } from './reload.js';

/** Names of cameras or sinks in the line at the top. */
const MOST_NAMES = 3;

startTheme();
startReload();
const history = new History();
const inspector = new Inspector();
const masks = new Masks();
const rules = new Rules(() => cameras.redraw());
const cameras = new Cameras(rules, (name, byHand) => {
  inspector.choose(name, byHand);
  masks.choose(name);
});
const events = new Events(rules, (name) => cameras.choose(name));
startSwitches(() => cameras.redraw());
new Log();
const stream = new Stream({
  frame: (message) => {
    history.frame(message, performance.now());
    cameras.message(message);
  },
  event: (event) => events.add(event),
  opened: () => events.load(),
  closed: () => history.interrupted(),
});
let daemon = null;
let lostSince = null;

followStatus(arrived, lost);

function arrived(status) {
  const known = daemon;
  daemon = { version: status.version, started: status.started_at, device: status.device };
  // A new version has a new page.
  if (known && known.version !== daemon.version) return location.reload();
  if (known && known.started !== daemon.started) {
    history.clear();
    cameras.clear();
  }
  if (lostSince !== null) speak('visiond answers again');
  lostSince = null;
  show(byId('banner'), false);
  stream.now();
  history.status(status, performance.now());
  cameras.status(status, history);
  inspector.status(status, history, rules);
  rules.status(status);
  events.status(status);
  masks.status(status);
  showMachine(status, history);
  state(status);
}

function lost(trouble, since) {
  lostSince = since;
  const seconds = (Date.now() - since) / 1000;
  // A single failed answer is not shown.
  if (daemon && seconds < 1) return;
  cameras.lost();
  write(byId('banner'), `${sentence(trouble)}. Retrying every second; the page shows the last state.`);
  show(byId('banner'), true);
  showState('bad', `No answer for ${duration(seconds)}`);
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, '');
}

/** Shows in one line whether everything works, and what does not. */
function state(status) {
  const inPhase = (phase) => status.cameras.filter((camera) => camera.phase === phase);
  const sinks = status.sinks.map((sink) => ({ name: sink.name, ...sinkState(sink) }));
  const warnings = new Set(sinks.filter((sink) => sink.level === 'warn').map((sink) => sink.state));
  const troubles = [
    ['bad', 'camera', inPhase('failed'), 'failed'],
    ['warn', 'camera', inPhase('waiting'), 'away'],
    ['bad', 'sink', sinks.filter((sink) => sink.level === 'bad'), 'cannot write'],
    ...[...warnings].map((state) => ['warn', 'sink', sinks.filter((sink) => sink.state === state), state.toLowerCase()]),
  ].filter(([, , list]) => list.length > 0);
  const text = troubles.map(([, part, list, trouble]) => `${part}${list.length > 1 ? 's' : ''} ${names(list)}: ${trouble}`).join('; ');
  if (troubles.length > 0) showState(worst(troubles.map(([level]) => level)), sentence(text));
  else if (!status.ready) showState('warn', 'Starting');
  else showState('ok', `Running for ${duration(status.uptime_s)}`);
}

/** The first names, and the number of the others. */
function names(list) {
  const first = list.slice(0, MOST_NAMES).map((each) => each.name).join(', ');
  return list.length > MOST_NAMES ? `${first} and ${list.length - MOST_NAMES} more` : first;
}

function showState(level, text) {
  const device = daemon?.device ?? '';
  write(byId('device'), device);
  // The title shows it among other tabs, which cut off its end.
  document.title = `${level === 'ok' ? '' : '(!) '}${device ? `${device} - ` : ''}visiond`;
  attribute(byId('state'), 'data-level', level);
  write(byId('state-text'), text);
}
