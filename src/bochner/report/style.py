"""How the page looks: one sheet, light and dark, phone and paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf8; --ink: #1b2226; --soft: #566168; --rule: #ddd9cf; --wash: #f3f1ea;
  --accent: #0d5c7c; --c0: #a4561a; --c1: #5e4aa5; --c2: #0d6c8f;
  --net: rgb(128 128 128 / .38);
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", Georgia, serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #11171a; --ink: #e3e5e2; --soft: #9ba6aa; --rule: #2c363b; --wash: #182024;
    --accent: #6fc0de; --c0: #e79a56; --c1: #b3a2f2; --c2: #57b8dc;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 3.5rem 1.25rem 4rem; max-width: 66rem;
  background: var(--paper); color: var(--ink); font: 1.0625rem/1.6 var(--sans);
}
h1, h2, .number b { font-family: var(--serif); font-weight: 600; text-wrap: balance; }
h1 { font-size: clamp(2rem, 1.3rem + 3vw, 3.1rem); line-height: 1.1; letter-spacing: -.012em;
  margin: .4rem 0 1rem; }
h2 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .6rem; }
p { margin: 0 0 1rem; max-width: 42rem; text-wrap: pretty; }
.lead { font-size: 1.2rem; line-height: 1.5; }
.kicker { font-size: .82rem; letter-spacing: .09em; text-transform: uppercase; color: var(--soft);
  margin: 0; }
.soft, figcaption, footer { color: var(--soft); font-size: .92rem; line-height: 1.5; }
section { margin-top: 3.5rem; }
a { color: var(--accent); }
.numbers { display: grid; grid-template-columns: repeat(4, 1fr); gap: 0 1.5rem; margin: 2rem 0 0;
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); }
.number { padding: 1rem 0; }
.number dd { margin: 0; }
.number dt { color: var(--soft); font-size: .88rem; line-height: 1.35; }
.number b { font-size: 1.9rem; line-height: 1.15; font-variant-numeric: lining-nums; }
.number small { font-size: .95rem; color: var(--soft); }
.number { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 2rem 2.25rem;
  align-items: start; }
figure { margin: 0; }
.pair figure > h3, .map h3 { margin: 0 0 .5rem; font-size: 1rem; font-weight: 600; }
figcaption { margin-top: .6rem; max-width: 42rem; }
.plane { position: relative; margin: 0 0 1.4rem 2.4rem; }
.plane img { display: block; width: 100%; height: auto; aspect-ratio: 2; }
.plane::after { content: ""; position: absolute; inset: 0; pointer-events: none;
  border: 1px solid rgb(128 128 128 / .45);
  background:
    linear-gradient(to right, var(--net) 1px, transparent 1px) 0 0 / calc(100% / 6) 100%,
    linear-gradient(to bottom, var(--net) 1px, transparent 1px) 0 0 / 100% calc(100% / 6);
}
.plane span, .bar span { position: absolute; font-size: .74rem; line-height: 1; color: var(--soft);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.plane .lat { right: calc(100% + .4rem); transform: translateY(-50%); }
.plane .lon { top: calc(100% + .4rem); transform: translateX(-50%); }
.bar { position: relative; margin: 1.1rem auto 2.9rem; width: min(34rem, calc(100% - 3rem)); }
.bar img { display: block; width: 100%; height: .7rem; image-rendering: pixelated; }
.bar span { top: calc(100% + .45rem); transform: translateX(-50%); }
.bar span::before { content: ""; position: absolute; left: 50%; top: -.45rem; height: .28rem;
  border-left: 1px solid var(--soft); }
.pair .bar { width: auto; margin: 1.1rem 0 2.9rem 2.4rem; }
.bar + .pair { margin-top: 3.6rem; }
.bar .unit { top: calc(100% + 1.5rem); left: 50%; }
.bar .unit::before { display: none; }
.wide { overflow-x: auto; margin: 1.25rem 0 .75rem; }
table { border-collapse: collapse; width: 100%; font-size: .98rem; line-height: 1.35;
  font-variant-numeric: tabular-nums lining-nums; }
th, td { padding: .5rem 0 .5rem 1.1rem; text-align: right; vertical-align: baseline;
  border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
thead th { font-weight: 500; font-size: .84rem; color: var(--soft); vertical-align: bottom;
  border-bottom: 1px solid var(--ink); }
tbody th { font-weight: 400; }
tr.best th, tr.best td:not(.plain) { font-weight: 650; }
tr.rival > * { color: var(--soft); }
td small { display: block; color: var(--soft); font-size: .78rem; font-weight: 400;
  white-space: nowrap; }
.plot { display: block; width: 100%; max-width: 40rem; height: auto; overflow: visible; }
.plot text { fill: var(--soft); font: 12px var(--sans); font-variant-numeric: tabular-nums; }
.plot .name { fill: var(--ink); }
.plot .grid { stroke: var(--rule); fill: none; }
.plot .axis { stroke: var(--soft); fill: none; }
.stroke { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 { fill: var(--c0); } .s0 .stroke, .s0.key .stroke { stroke: var(--c0); }
.s1 { fill: var(--c1); } .s1 .stroke, .s1.key .stroke { stroke: var(--c1); }
.s2 { fill: var(--c2); } .s2 .stroke, .s2.key .stroke { stroke: var(--c2); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: 0 0 .9rem;
  padding: 0; font-size: .92rem; }
.legend li { display: flex; align-items: center; gap: .5rem; }
.key { width: 28px; height: 12px; }
blockquote { margin: 1.25rem 0; padding: .2rem 0 .2rem 1.25rem;
  border-left: 3px solid var(--accent); max-width: 42rem;
  font-family: var(--serif); font-size: 1.12rem; line-height: 1.55;
  white-space: pre-line; }
pre { background: var(--wash); border: 1px solid var(--rule); border-radius: 6px; overflow-x: auto;
  padding: 1rem 1.1rem; font: .86rem/1.6 var(--mono); tab-size: 4; }
code { font-family: var(--mono); font-size: .9em; }
footer { margin-top: 4rem; padding-top: 1.25rem; border-top: 1px solid var(--rule); }
footer p { max-width: 50rem; }
@media (max-width: 46rem) {
  body { padding: 2rem 1.1rem 3rem; font-size: 1rem; }
  section { margin-top: 2.75rem; }
  .pair { grid-template-columns: minmax(0, 1fr); }
  .numbers { grid-template-columns: repeat(2, 1fr); }
  .number { padding: .8rem 0; }
  .number:nth-child(n + 3) { border-top: 1px solid var(--rule); }
  th, td { padding-left: .6rem; }
  table { font-size: .86rem; }
  .r2 { display: none; }
  td small { font-size: .7rem; }
  thead th { font-size: .76rem; }
  .plane { margin-left: 2.1rem; }
  .bar, .pair .bar { width: auto; margin-left: 2.1rem; margin-right: 0; }
  .plot text { font-size: 14.5px; }
}
@media print {
  :root { --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb; --wash: #fff; --accent: #0d5c7c;
    --c0: #a4561a; --c1: #5e4aa5; --c2: #0d6c8f; }
  html { font-size: 84%; }
  body { padding: 0; max-width: none; }
  section { margin-top: 1.6rem; }
  figure, .pair > div, table, blockquote, pre, .numbers { break-inside: avoid; }
  h2 { break-after: avoid; }
  pre { white-space: pre-wrap; }
  img, .plane::after { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

#: What a model's report has beside the demo.
REPORT_STYLE = """
h1, h2, h3, .lead, dd { overflow-wrap: anywhere; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1.05rem; font-weight: 600; }
.pair { margin: 1.25rem 0 1.75rem; gap: 1.5rem 2.25rem; }
.pair > div { min-width: 0; }
.pair figure > h3 { margin: 0 0 .5rem; }
.pair .wide { margin-top: 0; }
section > .wide { max-width: 46rem; }
#rows .wide, #predictions > .wide { max-width: none; }
caption { caption-side: top; text-align: left; color: var(--soft); font-size: .88rem;
  padding: 0 0 .35rem; }
.facts { margin: 1rem 0 0; border-top: 1px solid var(--rule); }
.facts > div { display: grid; grid-template-columns: 10.5rem minmax(0, 1fr); gap: 0 1.25rem;
  padding: .5rem 0; border-bottom: 1px solid var(--rule); }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; }
.numbers { grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.number:nth-child(n) { border-top: 0; }
#rows td, #rows th { white-space: nowrap; }
.plot .on { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 4px;
  stroke-linejoin: round; }
.rule { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 2 3; }
.whiskers { fill: none; stroke: var(--c2); stroke-width: 1.5; stroke-opacity: .6; }
.dots { fill: none; stroke-width: 4.5; stroke-linecap: round; stroke-opacity: .5; }
.d0 { stroke: var(--c0); } .d1 { stroke: var(--c1); } .d2 { stroke: var(--c2); }
.bars { fill-opacity: .65; }
.plot + figcaption { margin-top: .35rem; }
@media (max-width: 46rem) {
  .facts > div { grid-template-columns: minmax(0, 1fr); }
  .facts dt { font-size: .86rem; }
  .numbers { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@media print {
  section { break-inside: auto; }
  .wide { overflow: visible; }
  .pair { break-inside: avoid; }
  h3, section > p { break-after: avoid; }
}
"""
