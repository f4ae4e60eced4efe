// Makes the daemon reload its configuration, and shows the outcome.

import { byId, element, write, attribute, show } from './dom.js';
import { plural } from './format.js';
import { ask } from './connection.js';

/** Loading a new model may take minutes. */
const TIMEOUT_MS = 180_000;
const WORDS = { added: 'added', removed: 'removed', changed: 'changed' };

export function startReload() {
  const button = byId('reload');
  button.addEventListener('click', async () => {
    button.disabled = true;
    showOutcome('Reloading', 'quiet', [element('p', { textContent: 'Reading and checking the configuration. The running one stays in force meanwhile.' })]);
    try {
      const answer = await ask('api/v1/reload', { method: 'POST', timeout: TIMEOUT_MS });
      outcome(answer);
    } catch {
      showOutcome('No answer', 'bad', [element('p', { textContent: 'visiond did not answer. Its log has the outcome of the reload.' })]);
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
    return showOutcome('Refused: the running configuration stays in force', 'bad', [element('p', { className: 'exact', textContent: why })]);
  }
  const parts = (body.changes ?? []).map(({ part, name, change }) => element('li', { textContent: [part, name, WORDS[change] ?? change].filter(Boolean).join(' ') }));
  const restart = (body.restart_needed ?? []).map((textContent) => element('li', { textContent }));
  const said = [];
  if (parts.length === 0 && restart.length === 0) said.push(element('p', { textContent: 'The file has no changes.' }));
  if (parts.length > 0) said.push(element('p', { textContent: `${plural(parts.length, 'change')} in force:` }), element('ul', {}, ...parts));
  if (restart.length > 0) said.push(element('p', { textContent: 'Needs a restart:' }), element('ul', {}, ...restart));
  showOutcome(`Applied in ${body.took_ms} ms`, restart.length > 0 ? 'warn' : 'ok', said);
}

function showOutcome(title, level, content) {
  write(byId('outcome-title'), title);
  attribute(byId('outcome'), 'data-level', level);
  byId('outcome-text').replaceChildren(...content);
  show(byId('outcome'), true);
}
