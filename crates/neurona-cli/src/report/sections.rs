//! The parts of the page.

use super::html::{escape, png_address};
use super::{Report, charts};
use crate::results::{Mistake, Results};

/// A matrix of more classes is shown by its worst cells only: a page of a million cells helps nobody.
const MOST_CELLS: usize = 120;
/// A matrix of more classes has no numbers in its cells.
const LARGE: usize = 40;

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n{body}</section>\n")
}

/// The figures people ask for first.
pub fn headline(report: &Report<'_>) -> String {
    let results = report.results;
    let split = if results.split == "val" { "validation" } else { &results.split };
    let seconds: f64 = report.history.iter().map(|e| e.seconds).filter(|s| s.is_finite()).sum();
    let time = if seconds < 120.0 { format!("{seconds:.1} s") } else { format!("{:.1} min", seconds / 60.0) };
    let mut figures = vec![
        ("Accuracy", percent(results.accuracy), format!("{} of {} {split} images", results.right(), results.images)),
        ("F1, mean of classes", percent(results.mean.f1), "precision and recall together".to_string()),
        ("Loss", format!("{:.4}", results.loss), "cross-entropy".to_string()),
        ("Calibration error", percent(results.calibration.error), "how far sure is from right".to_string()),
    ];
    if !report.history.is_empty() {
        figures.push(("Training", time, format!("{} epochs", report.history.len())));
    }
    if results.classes.len() > 5 {
        figures.insert(1, ("Top 5", percent(results.top5), "right class among the five likeliest".to_string()));
    }
    let cards = figures.iter().map(|(name, value, note)| {
        format!(
            "<div class=\"card\"><dt>{name}</dt><dd><strong>{value}</strong><span>{}</span></dd></div>\n",
            escape(note)
        )
    });
    format!("<dl class=\"cards\">\n{}</dl>\n", cards.collect::<String>())
}

/// Loss and accuracy over the epochs, and the table they come from.
pub fn curves(report: &Report<'_>) -> String {
    let epochs = report.history.len();
    if epochs == 0 {
        return String::new();
    }
    let figures = charts::lines_of(report.history).map(|(id, title, unit, lines)| {
        format!(
            "<figure><figcaption>{title} <span class=\"key train\">training</span> \
             <span class=\"key val\">validation</span></figcaption>\n{}\n<p class=\"readout\" id=\"read-{id}\"></p></figure>\n",
            charts::lines(id, title, unit, &lines, epochs)
        )
    });
    let rows = report.history.iter().map(|e| {
        let cells = [
            e.epoch.to_string(),
            format!("{:.6}", e.lr),
            format!("{:.4}", e.train_loss),
            percent(e.train_accuracy),
            format!("{:.4}", e.val_loss),
            percent(e.val_accuracy),
            format!("{:.0}", e.images_per_s),
            format!("{:.1}", e.seconds),
        ];
        format!(
            "<tr>{}</tr>\n",
            cells.map(|c| format!("<td>{}</td>", c.replace("NaN %", "–").replace("NaN", "–"))).concat()
        )
    });
    let heads = [
        "epoch",
        "learning rate",
        "training loss",
        "training accuracy",
        "validation loss",
        "validation accuracy",
        "images/s",
        "seconds",
    ]
    .map(|h| format!("<th scope=\"col\">{h}</th>"));
    let table = format!(
        "<details><summary>All {epochs} epochs</summary><div class=\"wide\" tabindex=\"0\" role=\"region\" \
         aria-label=\"All epochs\"><table class=\"numbers\"><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div></details>\n",
        heads.concat(),
        rows.collect::<String>()
    );
    section("learning", "How it learned", &format!("<div class=\"pair\">\n{}</div>\n{table}", figures.concat()))
}

/// Who was taken for whom.
pub fn confusion(results: &Results) -> String {
    let name = |class: usize| escape(&results.classes[class]);
    let worst = results.worst(8);
    let items = worst.iter().map(|c| {
        let of: usize = results.confusion[c.truth].iter().sum();
        format!("<li><b>{}</b> taken for <b>{}</b>: {} of {of}</li>\n", name(c.truth), name(c.guess), c.times)
    });
    let list = match worst.is_empty() {
        true => "<p>It confused nothing.</p>\n".to_string(),
        false => format!("<h3>Most often</h3>\n<ol class=\"worst\">\n{}</ol>\n", items.collect::<String>()),
    };
    let matrix = match results.classes.len() > MOST_CELLS {
        true => "<p>The whole matrix is in confusion.csv and pictures/confusion.png.</p>\n".to_string(),
        false => matrix(results),
    };
    // A large matrix needs the width of the page.
    let beside = if results.classes.len() > LARGE { "" } else { " class=\"sides\"" };
    let body = format!("<div{beside}>\n<div>{matrix}</div>\n<div>{list}</div>\n</div>\n");
    section("confusions", "What it confuses", &body)
}

fn matrix(results: &Results) -> String {
    let n = results.classes.len();
    let heads: String =
        results.classes.iter().map(|c| format!("<th scope=\"col\"><span>{}</span></th>", escape(c))).collect();
    let mut rows = String::new();
    for (truth, row) in results.confusion.iter().enumerate() {
        let total = row.iter().sum::<usize>().max(1) as f64;
        rows += &format!("<tr><th scope=\"row\">{}</th>", escape(&results.classes[truth]));
        for (guess, count) in row.iter().enumerate() {
            // The root makes single mistakes visible.
            let share = (*count as f64 / total).sqrt();
            // White is readable on the full colour only; black on all that is lighter.
            let class = match (truth == guess, share) {
                (true, 0.94..) => "right full",
                (true, _) => "right",
                (false, 0.97..) => "wrong full",
                (false, _) => "wrong",
            };
            rows += &match count {
                0 => "<td></td>".to_string(),
                n => format!("<td class=\"{class}\" style=\"--s:{share:.2}\">{n}</td>"),
            };
        }
        rows += "</tr>\n";
    }
    let size = if n > LARGE {
        "tiny"
    } else if n > 16 {
        "small"
    } else {
        ""
    };
    format!(
        "<p class=\"hint\">Rows: what it is. Columns: what it was taken for. <span class=\"js\">Arrow keys move between \
         cells.</span></p>\n<div class=\"wide\"><table class=\"matrix {size}\" id=\"matrix\" aria-label=\"Confusion matrix\">\
         <thead><tr><td></td>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>\n\
         <p class=\"readout\" id=\"read-matrix\" aria-live=\"polite\"></p>\n"
    )
}

/// The scores of each class.
pub fn classes(results: &Results) -> String {
    let rows = results.per_class.iter().map(|c| {
        let bar = |value: f64| {
            let share = value.clamp(0.0, 1.0);
            format!(
                "<td data-v=\"{value:.6}\"><span class=\"meter\" style=\"--v:{share:.3}\"></span>{}</td>",
                percent(value)
            )
        };
        let s = c.scores;
        format!(
            "<tr><th scope=\"row\">{}</th><td data-v=\"{}\">{}</td>{}{}{}</tr>\n",
            escape(&c.name),
            c.count,
            c.count,
            bar(s.recall),
            bar(s.precision),
            bar(s.f1)
        )
    });
    let heads = ["class", "images", "accuracy (recall)", "precision", "F1"]
        .map(|h| format!("<th scope=\"col\" aria-sort=\"none\"><span>{h}</span></th>"));
    let table = format!(
        "<p class=\"hint js\">Click a heading, or press Enter on it, to sort.</p>\n<div class=\"wide\">\
         <table class=\"numbers sortable\"><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
        heads.concat(),
        rows.collect::<String>()
    );
    section("classes", "Each class", &table)
}

/// The wrong answers it was surest of.
pub fn mistakes(report: &Report<'_>) -> String {
    let results = report.results;
    if results.mistakes.is_empty() {
        return section("mistakes", "Mistakes", "<p>There are none.</p>\n");
    }
    let tile = |(i, m): (usize, &Mistake)| {
        let (truth, guess) = (escape(&results.classes[m.truth]), escape(&results.classes[m.guess]));
        let image = match report.images.get(i).and_then(Option::as_ref) {
            Some(file) => {
                format!("<img src=\"{}\" alt=\"{truth}, taken for {guess}: {}\">", png_address(file), escape(&m.file))
            }
            None => format!(
                "<div class=\"none\" role=\"img\" aria-label=\"{truth}, taken for {guess}\">no image at hand</div>"
            ),
        };
        let likely = m
            .probabilities
            .iter()
            .map(|(class, p)| format!("<li>{} {}</li>", escape(&results.classes[*class]), percent(*p)));
        format!(
            "<li>{image}<p><span class=\"guess\">{guess} {:.0} %</span><br><span class=\"truth\">is {truth}</span></p>\
             <details><summary>More</summary><p class=\"file\">{}</p><ul>{}</ul></details></li>\n",
            100.0 * m.confidence,
            escape(&m.file),
            likely.collect::<String>()
        )
    };
    let tiles: String = results.mistakes.iter().enumerate().map(tile).collect();
    section("mistakes", "Most confident mistakes", &format!("<ul class=\"gallery\">\n{tiles}</ul>\n"))
}

/// Whether it is as sure as it is right.
pub fn calibration(results: &Results) -> String {
    let bins = &results.calibration.bins;
    let rows = bins.iter().filter(|b| b.count > 0).map(|b| {
        format!("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", percent(b.confidence), percent(b.accuracy), b.count)
    });
    let body = format!(
        "<p class=\"hint\">When it is 80 % sure, is it right in 80 % of cases? Then the bars reach the dashed line. \
         Faint bars stand for few answers.</p>\n<div class=\"sides\"><figure>{}</figure>\n<details open>\
         <summary>Figures</summary><table class=\"numbers\"><thead><tr><th scope=\"col\">sure</th>\
         <th scope=\"col\">right</th><th scope=\"col\">answers</th></tr></thead><tbody>\n{}</tbody></table></details></div>\n",
        charts::reliability(&results.calibration),
        rows.collect::<String>()
    );
    section("sure", "Sure and right", &body)
}

/// What the first layer looks for.
pub fn filters(report: &Report<'_>) -> String {
    let Some(file) = report.filters else { return String::new() };
    let body = format!(
        "<img class=\"filters\" src=\"{}\" alt=\"The filters of the first layer as small pictures\">\n",
        png_address(file)
    );
    section("filters", "First layer", &body)
}

/// Settings and machine.
pub fn tables(report: &Report<'_>) -> String {
    let table = |caption: &str, pairs: &[(String, String)]| {
        let rows =
            pairs.iter().map(|(k, v)| format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(k), escape(v)));
        format!(
            "<details><summary>{caption}</summary><table class=\"pairs\"><tbody>\n{}</tbody></table></details>\n",
            rows.collect::<String>()
        )
    };
    let body = table("Settings", report.settings) + &table("Machine", report.environment);
    section("how", "How it was made", &body)
}
