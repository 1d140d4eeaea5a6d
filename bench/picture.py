"""What the pictures of bench/ share: colours for light and dark pages, and the frame around a drawing."""

STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; } .title { font-size: 18px; font-weight: 600; } .faint { fill: #59636e; font-size: 12px; }
  .grid { stroke: #d1d9e0; } .neurona { fill: #0072b2; } .torch { fill: #d55e00; } .ratio { font-weight: 600; }
  .line { stroke: #d55e00; stroke-width: 2; } .keras { fill: #cc79a7; } .burn { fill: #009e73; } .candle { fill: #7a7a7a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .page { fill: #0d1117; } .faint { fill: #9198a1; } .grid { stroke: #3d444d; }
    .neurona { fill: #56b4e9; } .torch { fill: #e69f00; } .line { stroke: #e69f00; } .candle { fill: #a8a8a8; }
  }"""


def framed(width, height, about, title, drawing):
    """The lines of an SVG file: a page with a title, and the drawing's lines on it."""
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{about}">'
    yield f"<style>{STYLE}\n</style>"
    yield f'<rect class="page" width="{width}" height="{height}" rx="8"/>'
    yield f'<text class="title" x="24" y="34">{title}</text>'
    yield from drawing
    yield "</svg>"


def save(path, lines):
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
