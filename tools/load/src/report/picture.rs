//! Several plots below each other as one SVG picture, which needs nothing else.

use std::fmt::Write as _;

use super::page::PALETTE;
use super::plot::{Axes, HEIGHT, Line, WIDTH, escape, has_visible_points, panel};

/// The height of the title of the picture.
const TITLE_HEIGHT: f64 = 34.0;

/// The height of the title of a plot, and of one line of its legend.
const LINE_HEIGHT: f64 = 18.0;

/// The space to the left of titles and legends.
const MARGIN: f64 = 16.0;

/// The width of a sample of a line with the gaps beside it, and that of a letter, which is an estimate.
const SAMPLE_WIDTH: f64 = 48.0;
const LETTER_WIDTH: f64 = 6.5;

const STYLE: &str = "\
text{font:11px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}.name{font-size:12px;font-weight:600}\
.grid{stroke:#ddd}polyline{fill:none;stroke-width:1.8}.dashed{stroke-dasharray:5 4}.mark{stroke:none}";

/// Draws the plots that have something to show, in their order.
pub(super) fn picture(title: &str, plots: &[(Axes<'_>, Vec<Line>)]) -> String {
    let (mut body, mut y) = (String::new(), TITLE_HEIGHT);
    for (axes, lines) in plots {
        let Some(panel) = panel(axes, lines) else { continue };
        y += LINE_HEIGHT;
        let _ = write!(
            body,
            "<text class=\"name\" x=\"{MARGIN}\" y=\"{:.1}\">{}</text>",
            y - 5.0,
            escape(axes.title)
        );
        y = draw_legend(&mut body, axes, lines, y);
        let _ = write!(body, "<g transform=\"translate(0 {y:.1})\">{panel}</g>");
        y += HEIGHT;
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" role=\"img\" aria-label=\"{}\"><style>{STYLE}",
        escape(title)
    );
    for (index, colour) in PALETTE.iter().enumerate() {
        let _ = write!(out, ".c{index}{{stroke:{colour}}}.mark.c{index}{{fill:{colour}}}");
    }
    let _ = writeln!(
        out,
        "</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text class=\"title\" x=\"{MARGIN}\" y=\"22\">{}</text>{body}</svg>",
        escape(title)
    );
    out
}

/// Writes the names of the lines beside samples of them, in as many rows as needed; returns the position below.
fn draw_legend(out: &mut String, axes: &Axes<'_>, lines: &[Line], top: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, top + LINE_HEIGHT);
    for line in lines.iter().filter(|line| has_visible_points(axes, line)) {
        let width = SAMPLE_WIDTH + LETTER_WIDTH * line.name.chars().count() as f64;
        if x > MARGIN && x + width > WIDTH {
            (x, y) = (MARGIN, y + LINE_HEIGHT);
        }
        let dash = if line.dashed { " dashed" } else { "" };
        let _ = write!(
            out,
            "<polyline class=\"c{}{dash}\" points=\"{x:.1},{:.1} {:.1},{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line.colour % PALETTE.len(),
            y - 9.0,
            x + 26.0,
            y - 9.0,
            x + 32.0,
            y - 5.0,
            escape(&line.name)
        );
        x += width;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_below_each_other_and_empty_ones_are_left_out() {
        let axes = |title| Axes {
            title,
            x: "seconds",
            y: "1/s",
            x_ticks: &[],
            y_logarithmic: false,
            is_sparse: false,
        };
        let line = |name: &str, points: Vec<(f64, f64)>| Line {
            name: name.to_owned(),
            colour: 0,
            dashed: false,
            points,
        };
        let full = || line("a line with quite a long name & more", vec![(0.0, 1.0), (1.0, 2.0)]);
        let plots = [
            (axes("first"), vec![full(), full(), full(), line("nothing", Vec::new())]),
            (axes("empty"), vec![line("none", Vec::new())]),
            (axes("last"), vec![full()]),
        ];
        let svg = picture("A < B", &plots);
        assert!(svg.starts_with("<svg xmlns") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<g transform").count(), 2);
        assert!(svg.contains("A &lt; B") && svg.contains("name &amp; more"), "{svg}");
        assert!(!svg.contains(">nothing<") && !svg.contains(">empty<"), "{svg}");
        // Two titles, three rows of legends (only two names fit into one) and two plots.
        let height = TITLE_HEIGHT + 2.0 * LINE_HEIGHT + 3.0 * LINE_HEIGHT + 2.0 * HEIGHT;
        assert!(svg.contains(&format!("viewBox=\"0 0 {WIDTH} {height:.0}\"")), "{svg:.200}");
    }
}
