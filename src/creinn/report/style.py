"""Style sheet of a page: light or dark as the reader's system has it, readable from 390 pixels on, printable."""

from creinn.report.theme import FONT, GRID

DARK = "#14181f"
"""Background of a dark page; that of a light one is white."""

STYLE = f"""
:root {{ color-scheme: light dark; --paper: #fff; --ink: #1f2933; --faint: #5f6875; --soft: #f3f5f8; --link: #2563a8;
  --grid: {GRID}; }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --paper: {DARK}; --ink: #e5e9ee; --faint: #9aa4b2; --soft: #1f2630; --link: #7fb2ec; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 2.5rem 1.75rem 5rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.6 {FONT}; overflow-wrap: break-word; }}
header {{ border-bottom: 1px solid var(--grid); padding-bottom: 1rem; }}
h1 {{ font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }}
h2 {{ font-size: 1.3rem; margin: 2.8rem 0 .6rem; }}
h3 {{ font-size: 1.02rem; margin: 1.6rem 0 .4rem; }}
p {{ max-width: 48rem; margin: .6rem 0; }}
p.lead {{ font-size: 1.05rem; }}
nav {{ display: flex; flex-wrap: wrap; gap: .35rem 1.2rem; margin-top: 1rem; font-size: .92rem; }}
a {{ color: var(--link); text-decoration: none; }}
a:hover {{ text-decoration: underline; }}
.table {{ overflow-x: auto; margin: 1rem 0 1.4rem; }}
table {{ border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: var(--faint); padding-bottom: .4rem; }}
th, td {{ padding: .42rem .6rem; text-align: left; border-bottom: 1px solid var(--grid); vertical-align: top; }}
th {{ border-bottom: 2px solid var(--ink); font-weight: 600; vertical-align: bottom; }}
.number {{ text-align: right; }}
.wide th, .wide td {{ padding: .42rem .4rem; }}
table:not(.wide) td.number {{ white-space: nowrap; }}
.published {{ color: var(--faint); }}
tbody tr:hover {{ background: var(--soft); }}
code, pre {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .88em; }}
pre {{ background: var(--soft); border: 1px solid var(--grid); border-radius: 4px; padding: .8rem 1rem;
  overflow-x: auto; }}
.drawn {{ margin: .8rem 0 1.2rem; }}
.js-plotly-plot text:not(.hoverlayer *) {{ fill: var(--ink) !important; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .1rem 1rem; }}
.legend > * {{ display: inline-flex; align-items: center; gap: .4rem; padding: .15rem 0; border: 0; background: none;
  color: inherit; font: inherit; font-size: .84rem; text-align: left; }}
.legend button {{ cursor: pointer; }}
.legend button[aria-pressed="false"] {{ opacity: .4; }}
.legend svg {{ flex: none; }}
.side {{ display: grid; gap: 1rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(var(--least), 100%), 1fr)); }}
.side > .item {{ min-width: 0; }}
.images {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(15.5rem, 100%), 1fr));
  gap: 1.4rem 1.2rem; margin: 1rem 0; }}
.cell {{ margin: 0; min-width: 0; }}
.pair {{ display: flex; align-items: flex-start; gap: .6rem; }}
.cell img {{ image-rendering: pixelated; border: 1px solid var(--grid); display: block; flex: none; }}
.cell figcaption {{ font-size: .84rem; line-height: 1.4; margin-top: .35rem; }}
.bars {{ fill: currentColor; font-family: {FONT}; min-width: 0; height: auto; }}
@media (max-width: 40rem) {{
  body {{ padding: 1.5rem 1rem 3rem; }}
  h1 {{ font-size: 1.6rem; }}
  th, td {{ padding: .35rem .4rem; }}
  td:not(.number, :first-child) {{ overflow-wrap: anywhere; }}
  .wide, .wide tbody, .wide tr, .wide td {{ display: block; }}
  .wide thead {{ display: none; }}
  .wide tr {{ margin-bottom: 1rem; }}
  .wide td:first-child {{ font-weight: 600; border-bottom: 2px solid var(--ink); }}
  .wide td:not(:first-child) {{ display: flex; justify-content: space-between; gap: 1rem; text-align: right; }}
  .wide td:not(:first-child)::before {{ content: attr(data-column); color: var(--faint); text-align: left; }} }}
@media print {{ body {{ max-width: none; padding: 0; }} nav {{ display: none; }} }}
""".strip()
