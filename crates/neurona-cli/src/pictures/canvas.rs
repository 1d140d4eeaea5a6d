//! Paper to draw on, and PNG files of it.

use crate::failure::{Failure, Outcome};
use neurona::data::Image;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Our own font: machines that train often have none.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-Latin.ttf");

/// Colours that people who see few colours can tell apart (Okabe and Ito).
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// For what stands against blue.
pub const VERMILLION: RGBColor = RGBColor(213, 94, 0);
/// For a third thing.
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
/// For text and axes.
pub const INK: RGBColor = RGBColor(40, 40, 40);
/// For text that matters less.
pub const FAINT: RGBColor = RGBColor(110, 110, 110);
/// For lines behind everything.
pub const GRID: RGBColor = RGBColor(225, 225, 225);

/// A part of the paper.
pub type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;
/// What drawing comes to.
pub type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Red, green and blue from the top left, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The bytes.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// White paper of this size, drawn on.
    pub fn paint(width: usize, height: usize, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Drawn<Self> {
        register_font("sans-serif", FontStyle::Normal, FONT).map_err(|_| "the built-in font is damaged")?;
        let mut rgb = vec![255; width * height * 3];
        let area = BitMapBackend::with_buffer(&mut rgb, (width as u32, height as u32)).into_drawing_area();
        draw(&area)?;
        area.present()?;
        drop(area);
        Ok(Picture { width, height, rgb })
    }

    /// An image as a picture: grey becomes three times the same.
    pub fn of(image: &Image) -> Self {
        let rgb = match image.channels() {
            1 => image.bytes().iter().flat_map(|grey| [*grey; 3]).collect(),
            _ => image.bytes().to_vec(),
        };
        Picture { width: image.width(), height: image.height(), rgb }
    }

    /// As a PNG file, or a word on why not.
    pub fn png_file(&self) -> Outcome<Vec<u8>> {
        self.png().map_err(|e| Failure::Told(format!("cannot make a PNG file: {e}")))
    }

    /// As a PNG file.
    pub fn png(&self) -> Drawn<Vec<u8>> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header()?.write_image_data(&self.rgb)?;
        Ok(file)
    }

    /// The picture in a square of `side` pixels: pixels repeated when it is smaller, averaged when it is larger.
    /// Proportions stay; the rest is light grey.
    pub fn fitted(&self, side: usize) -> Picture {
        let mut rgb = vec![238; side * side * 3];
        let longest = self.width.max(self.height).max(1);
        let (w, h) = ((self.width * side / longest).max(1), (self.height * side / longest).max(1));
        let (left, top) = ((side - w) / 2, (side - h) / 2);
        for y in 0..h {
            let rows = span(y, h, self.height);
            for x in 0..w {
                let columns = span(x, w, self.width);
                for channel in 0..3 {
                    let at = |row: usize, column: usize| self.rgb[(row * self.width + column) * 3 + channel] as usize;
                    let sum: usize = rows.clone().flat_map(|r| columns.clone().map(move |c| at(r, c))).sum();
                    let mean = sum / (rows.len() * columns.len()).max(1);
                    rgb[((top + y) * side + left + x) * 3 + channel] = mean as u8;
                }
            }
        }
        Picture { width: side, height: side, rgb }
    }

    /// Draws it into an area.
    pub fn paste(&self, area: &Area<'_>, (left, top): (i32, i32)) -> Drawn {
        for (i, pixel) in self.rgb.chunks_exact(3).enumerate() {
            let place = (left + (i % self.width) as i32, top + (i / self.width) as i32);
            area.draw_pixel(place, &RGBColor(pixel[0], pixel[1], pixel[2]))?;
        }
        Ok(())
    }
}

/// The pixels of `from` that pixel `i` of `to` stands for; always one at least.
fn span(i: usize, to: usize, from: usize) -> std::ops::Range<usize> {
    let start = (i * from / to).min(from - 1);
    start..((i + 1) * from / to).clamp(start + 1, from)
}

/// Text of this size and colour, held at this point of it.
pub fn text(size: i32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    TextStyle { font: ("sans-serif", size).into_font(), color: colour.to_backend_color(), pos: Pos::new(h, v) }
}

/// A name that takes no more than this many characters.
pub fn short(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => name.to_string(),
    }
}

/// White for nothing, the colour itself for all. The root makes single mistakes visible.
pub fn tint(RGBColor(r, g, b): RGBColor, share: f64) -> RGBColor {
    let mix = |c: u8| (255.0 + (c as f64 - 255.0) * share.clamp(0.0, 1.0).sqrt()) as u8;
    RGBColor(mix(r), mix(g), mix(b))
}

/// White or ink, whichever is easier to read on this colour (contrast as in WCAG 2).
pub fn legible_on(colour: RGBColor) -> RGBColor {
    let contrast = |text: RGBColor| {
        let (a, b) = (luminance(text), luminance(colour));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    };
    if contrast(WHITE) > contrast(INK) { WHITE } else { INK }
}

/// How bright a colour looks: 0 for black, 1 for white.
fn luminance(RGBColor(r, g, b): RGBColor) -> f64 {
    let linear = |c: u8| match c as f64 / 255.0 {
        c if c <= 0.04045 => c / 12.92,
        c => ((c + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stands_out_from_every_tint() {
        assert_eq!((legible_on(tint(BLUE, 0.77)), legible_on(tint(BLUE, 0.05))), (WHITE, INK));
        for share in 0..=100 {
            for hue in [BLUE, VERMILLION] {
                let ground = tint(hue, share as f64 / 100.0);
                let (a, b) = (luminance(ground), luminance(legible_on(ground)));
                assert!((a.max(b) + 0.05) / (a.min(b) + 0.05) > 3.5, "{share} % of {hue:?}");
            }
        }
    }

    #[test]
    fn small_pictures_grow_and_large_ones_are_averaged() {
        let two = Picture { width: 2, height: 1, rgb: vec![0, 0, 0, 200, 100, 50] };
        let grown = two.fitted(4);
        assert_eq!(&grown.rgb[..3], [238; 3], "above it is empty");
        assert_eq!(&grown.rgb[4 * 3..6 * 3], [0; 6]);
        assert_eq!(&grown.rgb[6 * 3..7 * 3], [200, 100, 50]);
        assert_eq!(two.fitted(1).rgb, [100, 50, 25]);
        assert_eq!(short("a long name", 6), "a lon…");
    }
}
