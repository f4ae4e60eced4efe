// Reload: the daemon reads its configuration again, and the page tells what came of it.

import { byId, element, write, attribute, show } from './dom.js';
import { plural } from './format.js';
import { ask } from './connection.js';

/** A new network may take its time to load. */
const PATIENCE_MS = 180_000;
const WORDS = { added: 'added', removed: 'removed', changed: 'changed' };

export function startReload() {
  const button = byId('reload');
  button.addEventListener('click', async () => {
    button.disabled = true;
    tell('Reloading', 'quiet', [element('p', { textContent: 'The configuration is read, checked and prepared; what runs goes on meanwhile.' })]);
    try {
      const answer = await ask('/api/v1/reload', { method: 'POST', patience: PATIENCE_MS });
      outcome(answer);
    } catch {
      tell('No answer', 'bad', [element('p', { textContent: 'visiond did not answer. What came of the reload is in its log.' })]);
    } finally {
      button.disabled = false;
      byId('outcome-title').focus();
    }
  });
  byId('outcome-close').addEventListener('click', () => {
    show(byId('outcome'), false);
    button.focus();
  });
}

function outcome({ ok, status, body }) {
  if (!ok) {
    const why = body?.error ?? body?.detail ?? `The answer was ${status}.`;
    const lines = why.split('\n').map((textContent) => element('p', { textContent }));
    return tell('Refused: what runs goes on as it was', 'bad', lines);
  }
  const parts = (body.changes ?? []).map(({ part, name, change }) => element('li', { textContent: [part, name, WORDS[change] ?? change].filter(Boolean).join(' ') }));
  const restart = (body.restart_needed ?? []).map((textContent) => element('li', { textContent }));
  const said = [];
  if (parts.length === 0 && restart.length === 0) said.push(element('p', { textContent: 'The file says what is in force already: nothing has changed.' }));
  if (parts.length > 0) said.push(element('p', { textContent: `${plural(parts.length, 'change')} in force:` }), element('ul', {}, ...parts));
  if (restart.length > 0) said.push(element('p', { textContent: 'Waits for a restart:' }), element('ul', {}, ...restart));
  tell(`Applied in ${body.took_ms} ms`, restart.length > 0 ? 'warn' : 'ok', said);
}

function tell(title, level, content) {
  write(byId('outcome-title'), title);
  attribute(byId('outcome'), 'data-level', level);
  byId('outcome-text').replaceChildren(...content);
  show(byId('outcome'), true);
}
