// Maps, arrays, strings and buffers, made and dropped so many times; one line that depends on them. With a garbage collector that
// must have run, large objects included. Arguments: rounds, records.
const { PerformanceObserver } = require('perf_hooks');
const [rounds, records] = process.argv.slice(2).map(Number);
let collections = 0, sum = 0, x = 1;
new PerformanceObserver((list) => { collections += list.getEntries().length; }).observe({ entryTypes: ['gc'] });
const kept = new Map();
const add = (n) => { sum = (Math.imul(sum, 31) + n) >>> 0; };

function round(r) {
  for (let i = 0; i < records / 2; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    kept.set(x % records, { name: 'n' + x, list: [x, r, { r }], bytes: i % 500 ? null : new Float64Array(2048).fill(x) });
  }
  if (r % 3 === 0) for (let i = r % 7; i < records; i += 7) kept.delete(i);
  for (const key of [...kept.keys()].sort((a, b) => a - b)) {
    const { name, list, bytes } = kept.get(key);
    add(name.length + list[0] + list[2].r + (bytes ? bytes[r % 2048] : 0));
  }
  // By way of the event loop, as observers hear of collections there.
  if (r + 1 < rounds) return setTimeout(round, 0, r + 1);
  setTimeout(() => {
    if (collections < 3) throw new Error(`only ${collections} garbage collections`);
    console.log(sum, kept.size);
  }, 10);
}
round(0);
