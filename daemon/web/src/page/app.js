// The page: passes what the daemon sends to the parts that show it.

import { byId, write, attribute, show, speak } from './dom.js';
import { duration } from './format.js';
import { startTheme } from './theme.js';
import { History } from './history.js';
import { followStatus, Stream } from './connection.js';
import { Cameras } from './cameras.js';
import { Inspector } from './inspector.js';
import { showMachine } from './machine.js';
import { Log } from './log.js';
import { startReload } from './reload.js';

startTheme();
startReload();
// Tells devices apart if several pages are open.
write(byId('device'), location.host);
const history = new History();
const inspector = new Inspector();
const cameras = new Cameras((name, byHand) => inspector.choose(name, byHand));
new Log();
const stream = new Stream((message) => {
  history.frame(message, performance.now());
  cameras.message(message);
});
let daemon = null;
let lostSince = null;

followStatus(arrived, lost);

function arrived(status) {
  const known = daemon;
  daemon = { version: status.version, started: status.started_at };
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
  inspector.status(status, history);
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
  const names = (list) => list.map((each) => each.name).join(', ');
  const failed = status.cameras.filter((camera) => camera.phase === 'failed');
  const away = status.cameras.filter((camera) => camera.phase === 'waiting');
  const out = status.sinks.filter((sink) => sink.outage || sink.connected === false);
  const troubles = [];
  if (failed.length > 0) troubles.push(`camera ${names(failed)} failed`);
  if (away.length > 0) troubles.push(`camera ${names(away)} away`);
  if (out.length > 0) troubles.push(`sink ${names(out)} cannot write`);
  if (troubles.length > 0) showState(failed.length + out.length > 0 ? 'bad' : 'warn', sentence(troubles.join('; ')));
  else if (!status.ready) showState('warn', 'Starting');
  else showState('ok', `Running for ${duration(status.uptime_s)}`);
}

function showState(level, text) {
  // The title shows it among other tabs.
  document.title = `${level === 'ok' ? '' : '(!) '}visiond ${location.host}`;
  attribute(byId('state'), 'data-level', level);
  write(byId('state-text'), text);
}
