// What the user sets, and this browser remembers: the theme (the system's choice, unless the user sets another) and scores on boxes.

import { byId, write, attribute } from './dom.js';

const THEMES = ['system', 'light', 'dark'];
const SCORES = ['on', 'off'];

/** Reads or writes the stored choice; a browser that refuses storage keeps it for this visit only. */
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(`visiond-${name}`, value);
    return localStorage.getItem(`visiond-${name}`);
  } catch {
    return null;
  }
}

/** Uses the stored choice, or the first one, and steps to the next one at each click of the button `name`. */
function choice(name, choices, use) {
  let at = Math.max(0, choices.indexOf(kept(name)));
  use(choices[at]);
  byId(name).addEventListener('click', () => {
    at = (at + 1) % choices.length;
    kept(name, choices[at]);
    use(choices[at]);
  });
}

export function startTheme() {
  choice('theme', THEMES, (theme) => {
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    write(byId('theme-name'), theme);
    attribute(byId('theme'), 'aria-label', `Theme: ${theme}`);
  });
}

let scores = true;

/** Whether labels on boxes have their score. */
export function showsScores() {
  return scores;
}

/** Calls `redraw()` when the user switches the scores on or off. */
export function startScores(redraw) {
  choice('scores', SCORES, (chosen) => {
    scores = chosen === 'on';
    attribute(byId('scores'), 'aria-pressed', String(scores));
    redraw();
  });
}
