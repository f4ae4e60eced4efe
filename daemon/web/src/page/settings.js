// What the user sets, and this browser remembers: the theme (the system's choice, unless the user sets another) and what pictures show.

import { byId, write, attribute } from './dom.js';

const THEMES = ['system', 'light', 'dark'];
/** What can be switched on and off, by the id of its button; the first one is the default. */
const SWITCHES = { scores: ['on', 'off'], zones: ['on', 'off'], heat: ['off', 'on'] };

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

const on = new Set(['scores']);

/** Whether pictures show it: scores of boxes, lines and zones, or where objects were. */
export function shows(name) {
  return on.has(name);
}

/** Calls `redraw()` when the user switches something on or off. */
export function startSwitches(redraw) {
  for (const [name, choices] of Object.entries(SWITCHES)) {
    choice(name, choices, (chosen) => {
      if (chosen === 'on') on.add(name);
      else on.delete(name);
      attribute(byId(name), 'aria-pressed', String(shows(name)));
      redraw();
    });
  }
}
