//! The page as text; `tools/check_report.mjs` looks at it in a browser.

use super::*;
use crate::pictures::Picture;
use crate::results::tests::sample;
use crate::run::history::tests::epochs;

fn made(results: &Results, history: &[Epoch]) -> String {
    let rgb = (0..28 * 28).flat_map(|i| [(i % 256) as u8, (i / 3 % 256) as u8, 90]).collect();
    let image = Picture { width: 28, height: 28, rgb }.png().unwrap();
    let images: Vec<_> = (0..24).map(|i| (i % 5 > 0).then(|| image.clone())).collect();
    let settings = [("data".to_string(), "a<b>".to_string())];
    let environment = [("cpu".to_string(), "x & y".to_string())];
    page(&Report {
        name: "pets-1",
        history,
        results,
        images: &images,
        filters: Some(&image),
        settings: &settings,
        environment: &environment,
    })
}

/// Every tag that is opened is closed, in order, and every attribute is quoted.
fn well_formed(page: &str) {
    let mut open = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains('<'), "{tag}");
        rest = &rest[end + 1..];
        let name = tag.split([' ', '\n', '/']).next().unwrap_or_default().to_string();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "closing {closed}");
        } else if !tag.ends_with('/') && !["meta", "link", "img", "br", "!doctype"].contains(&name.as_str()) {
            open.push(name.clone());
            // What is inside these is no markup.
            if name == "script" || name == "style" {
                rest = &rest[rest.find(&format!("</{name}>")).expect("it ends")..];
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn pages_are_well_formed_and_ask_for_nothing() {
    for (classes, length) in [(1, 0), (2, 1), (10, 12), (100, 200), (130, 3)] {
        let page = made(&sample(classes), &epochs(length));
        well_formed(&page);
        // The one address is the name of SVG's elements, which nothing is fetched from.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "src=\"/", "url(", "@import", "fetch("] {
            assert!(!addresses.contains(outside), "{outside}");
        }
        if let Ok(folder) = std::env::var("NEURONA_KEEP_PICTURES") {
            std::fs::write(format!("{folder}/{classes}-report.html"), page).unwrap();
        }
    }
}

#[test]
fn names_stay_text() {
    let mut results = sample(3);
    let evil = "</script><img src=x onerror=alert(1)>'\"&";
    results.classes[1] = evil.to_string();
    results.per_class[1].name = evil.to_string();
    results.mistakes[0].file = format!("dir/{evil}.jpg");
    let page = made(&results, &epochs(2));
    well_formed(&page);
    assert!(!page.contains("<img src=x"));
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(page.contains("a&lt;b&gt;") && page.contains("x &amp; y"));
}

#[test]
fn gaps_are_gaps() {
    let mut history = epochs(5);
    history[2].val_loss = f64::NAN;
    history[3].val_accuracy = f64::NAN;
    let page = made(&sample(3), &history);
    assert!(!page.contains("NaN"), "a gap is null for the script and nothing in the picture");
}
