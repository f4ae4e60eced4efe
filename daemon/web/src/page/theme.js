// Light or dark: as the system has it, until somebody says otherwise; that is kept in this browser.

import { byId, write, attribute } from './dom.js';

const THEMES = ['system', 'light', 'dark'];

/** A browser may refuse to keep anything; then the choice holds for this visit. */
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
