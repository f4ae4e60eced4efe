// Light or dark: the system's choice, unless the user sets another, which this browser remembers.

import { byId, write, attribute } from './dom.js';

const THEMES = ['system', 'light', 'dark'];

/** Reads or writes the stored choice; a browser that refuses storage keeps it for this visit only. */
function kept(value) {
  try {
    if (value !== undefined) localStorage.setItem('visiond-theme', value);
    return localStorage.getItem('visiond-theme');
  } catch {
    return null;
  }
}

function use(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  write(byId('theme-name'), theme);
  attribute(byId('theme'), 'aria-label', `Theme: ${theme}`);
}

export function startTheme() {
  let theme = THEMES.includes(kept()) ? kept() : 'system';
  use(theme);
  byId('theme').addEventListener('click', () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    kept(theme);
    use(theme);
  });
}
