// Formats numbers for people.

const THIN = '\u202f';

/** 1 234 567 */
export function count(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, THIN);
}

/** Three figures at most. */
export function figures(number) {
  return number < 9.95 ? number.toFixed(number === 0 ? 0 : 1) : count(number);
}

/** Microseconds as milliseconds: 0.42, 4.2, 42. */
export function millis(us) {
  if (us === null || us === undefined) return '–';
  const ms = us / 1000;
  if (ms < 1) return ms.toFixed(2);
  return ms < 9.95 ? ms.toFixed(1) : count(ms);
}

/** In the units of the configuration's sizes: 64 MiB, 1.5 GiB. */
export function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; number >= 1023.5 && unit < units.length - 1; unit += 1) number /= 1024;
  return `${unit === 0 ? number : figures(number)} ${units[unit]}`;
}

/** Two units at most: 3 d 4 h, 12 min 5 s. */
export function duration(seconds) {
  const parts = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  let rest = Math.max(0, Math.floor(seconds));
  const first = parts.findIndex(([unit, size]) => rest >= size || unit === 's');
  return parts
    .slice(first, first + 2)
    .map(([unit, size]) => {
      const whole = Math.floor(rest / size);
      rest -= whole * size;
      return `${whole} ${unit}`;
    })
    .join(' ');
}

export function percent(part) {
  if (part > 0 && part < 0.001) return '< 0.1 %';
  return `${(part * 100).toFixed(part < 0.0995 && part > 0 ? 1 : 0)} %`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The hour of an RFC 3339 time, here. */
export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toLocaleTimeString([], { hour12: false });
}

/** The detections in the newest frame: 3 × person, 1 × dog */
export function labels(list) {
  const seen = list.filter((label) => label.newest > 0).sort((a, b) => b.newest - a.newest);
  return seen.map((label) => `${count(label.newest)} × ${label.label}`).join(', ');
}
