//! report.html: a run on one page that needs nothing else. No request leaves it; it works without scripts, and with
//! them it can be explored with pointer or keyboard.

mod charts;
mod html;
mod sections;

use crate::results::Results;
use crate::run::Epoch;
use html::escape;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What the page shows.
pub struct Report<'a> {
    /// The run's name.
    pub name: &'a str,
    /// The epochs.
    pub history: &'a [Epoch],
    /// The final evaluation.
    pub results: &'a Results,
    /// The mistakes' images as PNG files, as far as they are at hand.
    pub images: &'a [Option<Vec<u8>>],
    /// The picture of the first layer's filters, as a PNG file.
    pub filters: Option<&'a [u8]>,
    /// The settings: names and values.
    pub settings: &'a [(String, String)],
    /// Where it ran: names and values.
    pub environment: &'a [(String, String)],
}

/// The page.
pub fn page(report: &Report<'_>) -> String {
    let name = escape(report.name);
    let sections = [
        sections::headline(report),
        sections::curves(report),
        sections::confusion(report.results),
        sections::classes(report.results),
        sections::mistakes(report),
        sections::calibration(report.results),
        sections::filters(report),
        sections::tables(report),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{name} · Neurona</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">To the results</a>\n\
         <header><p class=\"brand\">Neurona</p><h1>{name}</h1>\
         <button type=\"button\" id=\"theme\" hidden>Dark</button></header>\n\
         <main id=\"main\">\n{}</main>\n\
         <footer>Made by Neurona {}. Everything on this page is in this file.</footer>\n\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        sections.concat(),
        env!("CARGO_PKG_VERSION"),
        html::json(&charts::data(report.history)),
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
