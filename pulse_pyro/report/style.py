"""The look of a page: dark text on white, one column, tables that scroll, paper kept in mind."""

# contrast of every text on its ground is at least 7 : 1
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: #1a1a1a; background: #fff; max-width: 52rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .6rem 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.6rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid #ccc; }
a { color: #004c7a; }
a:focus-visible, .scroll:focus-visible { outline: 3px solid #0072B2; outline-offset: 2px; }
.verdict { border-left: .4rem solid #0072B2; margin: 0 0 1.2rem; padding: .6rem 1rem;
  background: #f3f7fa; font-size: 1.05rem; }
nav ol { columns: 2 16rem; padding-left: 2rem; margin: 0; }
nav li { break-inside: avoid; padding: .15rem 0; }
.top { font-size: .85rem; }
.scroll { overflow-x: auto; margin: .8rem 0;
  background: linear-gradient(to left, #fff 1.5rem, #fff0) right / 3rem 100% no-repeat local,
    linear-gradient(to left, #0003, #0000) right / .7rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid #ddd; font-weight: normal; }
thead th { border-bottom: 2px solid #666; vertical-align: bottom; font-weight: 600; }
th.text, td.text { text-align: left; } td.num, tbody th:not(.long) { white-space: nowrap; }
.long { min-width: 15rem; overflow-wrap: anywhere; }
td.pass, td.warn, td.fail { font-weight: 600; }
td.pass { color: #00563f; } td.warn { color: #7a3600; background: #fff4e5; }
td.fail { color: #8a0f0f; background: #fdecec; }
figure { margin: 1.2rem 0; } svg { display: block; width: 100%; height: auto; }
figcaption { color: #333; margin-top: .4rem; }
figcaption::before { content: "Reading: "; font-weight: 600; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: .8rem; font-size: .82rem;
  overflow-wrap: anywhere; }
@media screen and (max-width: 40rem) {
  .told, .told tbody, .told tr { display: block; }
  .told thead { position: absolute; clip-path: inset(50%); }
  .told tr { padding: .5rem 0; border-bottom: 1px solid #ddd; }
  .told th, .told td { display: inline-block; border: 0; padding: 0 1rem 0 0; text-align: left; }
  .told tbody th { font-weight: 600; } .told .long { display: block; min-width: 0; }
  .told td.num:not(:empty)::before { content: attr(data-name) " "; color: #444; }
  .told td:empty { display: none; }
}
@media print {
  @page { margin: 14mm; }
  body { font-size: 10.5pt; max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  figure, tr, pre, section:not(:has(table)) { break-inside: avoid; }
  thead { display: table-header-group; }
  .top { display: none; } .scroll { overflow: visible; background: none; }
  table { font-size: 8pt; width: 100%; }
  th, td { padding: .15rem .35rem; } .long { min-width: 0; }
  td.num { white-space: normal; } svg { width: 96mm; }
  a { color: inherit; text-decoration: none; }
}
"""
