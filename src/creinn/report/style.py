"""Style sheet of a page: dark text on white, readable at the width of a laptop, printable."""

from creinn.report.theme import FAINT, FONT, GRID, INK, PALETTE

STYLE = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 2.5rem 1.75rem 5rem; max-width: 72rem; background: #fff; color: {INK};
  font: 16px/1.6 {FONT}; }}
header {{ border-bottom: 1px solid {GRID}; padding-bottom: 1rem; }}
h1 {{ font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }}
h2 {{ font-size: 1.3rem; margin: 2.8rem 0 .6rem; }}
h3 {{ font-size: 1.02rem; margin: 1.6rem 0 .4rem; }}
p {{ max-width: 48rem; margin: .6rem 0; }}
p.lead {{ font-size: 1.05rem; color: #374151; }}
nav {{ display: flex; flex-wrap: wrap; gap: .35rem 1.2rem; margin-top: 1rem; font-size: .92rem; }}
a {{ color: {PALETTE[0]}; text-decoration: none; }}
a:hover {{ text-decoration: underline; }}
.table {{ overflow-x: auto; margin: 1rem 0 1.4rem; }}
table {{ border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: {FAINT}; padding-bottom: .4rem; }}
th, td {{ padding: .42rem .8rem; text-align: left; border-bottom: 1px solid {GRID}; white-space: nowrap; }}
th {{ border-bottom: 2px solid {INK}; font-weight: 600; vertical-align: bottom; white-space: normal; }}
.number {{ text-align: right; }}
.published {{ color: {FAINT}; }}
tbody tr:hover {{ background: #f8fafc; }}
code, pre {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .88em; }}
pre {{ background: #f8fafc; border: 1px solid {GRID}; border-radius: 4px; padding: .8rem 1rem; overflow-x: auto; }}
.figure {{ margin: .8rem 0 1.2rem; }}
.side {{ display: grid; gap: 1rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(var(--least), 100%), 1fr)); }}
.side > .item {{ min-width: 0; }}
.images {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(15.5rem, 1fr)); gap: 1.4rem 1.2rem;
  margin: 1rem 0; }}
.cell {{ margin: 0; }}
.pair {{ display: flex; align-items: flex-start; gap: .6rem; }}
.cell img {{ image-rendering: pixelated; border: 1px solid {GRID}; display: block; }}
.cell figcaption {{ font-size: .84rem; line-height: 1.4; color: #374151; margin-top: .35rem; }}
.bars {{ font-family: {FONT}; }}
@media print {{ body {{ max-width: none; padding: 0; }} nav {{ display: none; }} }}
""".strip()
