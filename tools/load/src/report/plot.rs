//! Line plots as SVG.

use std::fmt::Write as _;

use crate::units::format_number;

/// The size of a plot.
pub(super) const WIDTH: f64 = 640.0;
pub(super) const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// The maximum number of points of one line; more would not be visible at this width.
const POINTS_MAX: usize = 640;

/// The maximum number of powers of ten on an axis with labels in between.
const FINE_POWERS_MAX: i32 = 4;

/// The number of distinguishable colours; further lines start over.
pub(super) const COLOURS: usize = 8;

/// One line of a plot.
pub(super) struct Line {
    pub(super) name: String,
    /// The index of its colour.
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// The labels and scales of the axes.
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// The labelled positions on the x axis; if empty, round numbers are labelled.
    pub(super) x_ticks: &'a [(f64, &'a str)],
    /// True if powers of ten are at equal distances.
    pub(super) y_logarithmic: bool,
    /// True if there are few points: they are marked, and a legend names the lines.
    pub(super) is_sparse: bool,
}

/// Draws the lines; returns an empty text if there is nothing to draw.
pub(super) fn svg(axes: &Axes<'_>, lines: &[Line]) -> String {
    let Some(panel) = panel(axes, lines) else { return String::new() };
    let mut out = format!("<figure><figcaption>{}</figcaption>", escape(axes.title));
    if axes.is_sparse {
        out.push_str(&legend(lines.iter().filter(|line| has_visible_points(axes, line))));
    }
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{panel}</svg></figure>",
        escape(axes.title)
    );
    out
}

/// Draws axes and lines, without the elements around them; `None` if there is nothing to draw.
pub(super) fn panel(axes: &Axes<'_>, lines: &[Line]) -> Option<String> {
    let lines: Vec<(&Line, Vec<(f64, f64)>)> = lines
        .iter()
        .map(|line| {
            let visible = line.points.iter().copied().filter(|point| is_visible(axes, point));
            (line, thinned(visible.collect()))
        })
        .collect();
    let scales = Scales::new(axes, lines.iter().flat_map(|(_, points)| points))?;
    let mut out = String::new();
    draw_grid(&mut out, &scales);
    draw_x_labels(&mut out, axes, &scales);
    draw_titles(&mut out, axes);
    for (line, points) in lines.iter().filter(|(_, points)| !points.is_empty()) {
        draw_line(&mut out, line, points, &scales, axes.is_sparse);
    }
    Some(out)
}

fn is_visible(axes: &Axes<'_>, (x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite() && (!axes.y_logarithmic || *y > 0.0)
}

/// True if the line has something to show.
pub(super) fn has_visible_points(axes: &Axes<'_>, line: &Line) -> bool {
    line.points.iter().any(|point| is_visible(axes, point))
}

/// The ranges of both axes, and where their values are in the picture.
struct Scales {
    x: (f64, f64),
    /// Powers of ten if the axis is logarithmic.
    y: (f64, f64),
    y_logarithmic: bool,
    y_ticks: Vec<f64>,
}

impl Scales {
    /// Returns scales that hold all points; `None` if there are no points.
    fn new<'p>(
        axes: &Axes<'_>,
        points: impl Iterator<Item = &'p (f64, f64)> + Clone,
    ) -> Option<Scales> {
        points.clone().next()?;
        let range = |value: fn(&(f64, f64)) -> f64| {
            let ends = (f64::MAX, f64::MIN);
            points.clone().map(value).fold(ends, |(low, high), v| (low.min(v), high.max(v)))
        };
        let mut x = range(|point| point.0);
        if let (Some(first), Some(last)) = (axes.x_ticks.first(), axes.x_ticks.last()) {
            x = (x.0.min(first.0), x.1.max(last.0));
        }
        let (y_min, y_max) = range(|point| point.1);
        let (y, y_ticks) = if axes.y_logarithmic {
            let ticks = round_powers(y_min, y_max, axes.is_sparse);
            let ends = ticks.first().zip(ticks.last());
            (ends.map_or((0.0, 1.0), |(low, high)| (low.log10(), high.log10())), ticks)
        } else {
            let ticks = round_steps(0.0, y_max.max(f64::MIN_POSITIVE));
            ((0.0, ticks.last().copied().unwrap_or(1.0)), ticks)
        };
        Some(Scales { x, y, y_logarithmic: axes.y_logarithmic, y_ticks })
    }

    fn x_of(&self, x: f64) -> f64 {
        let (low, high) = self.x;
        let span = if high > low { high - low } else { 1.0 };
        LEFT + (x - low) / span * (WIDTH - LEFT - RIGHT)
    }

    fn y_of(&self, y: f64) -> f64 {
        let y = if self.y_logarithmic { y.log10() } else { y };
        let (low, high) = self.y;
        HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws a horizontal line with a label at each tick of the y axis.
fn draw_grid(out: &mut String, scales: &Scales) {
    for tick in &scales.y_ticks {
        let y = scales.y_of(*tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            show_tick(*tick)
        );
    }
}

/// Writes the labels of the x axis: the given ones, or round numbers.
fn draw_x_labels(out: &mut String, axes: &Axes<'_>, scales: &Scales) {
    let (low, high) = scales.x;
    let labels: Vec<(f64, String)> = if axes.x_ticks.is_empty() {
        let steps = round_steps(low, high).into_iter().filter(|x| (low..=high).contains(x));
        steps.map(|x| (x, show_tick(x))).collect()
    } else {
        axes.x_ticks.iter().map(|(x, name)| (*x, (*name).to_owned())).collect()
    };
    for (x, label) in labels {
        let x = scales.x_of(x);
        // A label at the right end would stick out.
        let anchor = if x > WIDTH - 2.0 * RIGHT { "end" } else { "middle" };
        let _ = write!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            HEIGHT - BOTTOM + 16.0,
            escape(&label)
        );
    }
}

/// Writes what the axes show.
fn draw_titles(out: &mut String, axes: &Axes<'_>) {
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(12 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escape(axes.x),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(axes.y)
    );
}

/// Draws a line, and a mark at each of its points if there are few.
fn draw_line(
    out: &mut String,
    line: &Line,
    points: &[(f64, f64)],
    scales: &Scales,
    is_sparse: bool,
) {
    let dash = if line.dashed { " dashed" } else { "" };
    let _ = write!(out, "<polyline class=\"c{}{dash}\" points=\"", line.colour % COLOURS);
    for (x, y) in points {
        let _ = write!(out, "{:.1},{:.1} ", scales.x_of(*x), scales.y_of(*y));
    }
    let _ = write!(out, "\"><title>{}</title></polyline>", escape(&line.name));
    for (x, y) in points.iter().filter(|_| is_sparse) {
        let _ = write!(
            out,
            "<circle class=\"mark c{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}: {}</title></circle>",
            line.colour % COLOURS,
            scales.x_of(*x),
            scales.y_of(*y),
            escape(&line.name),
            format_number(*y)
        );
    }
}

/// Formats the names of the lines, each beside a sample of the line.
fn legend<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    let mut out = "<div class=\"legend\">".to_owned();
    for line in lines {
        let dash = if line.dashed { " dashed" } else { "" };
        let _ = write!(
            out,
            "<span><svg class=\"swatch\" viewBox=\"0 0 26 8\" aria-hidden=\"true\"><polyline class=\"c{}{dash}\" points=\"0,4 26,4\"/></svg>{}</span>",
            line.colour % COLOURS,
            escape(&line.name)
        );
    }
    out.push_str("</div>");
    out
}

/// Reduces the points to the maximum that is visible, keeping the first and the last.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let step = points.len().div_ceil(POINTS_MAX - 1);
    let last = points.last().copied();
    points.into_iter().step_by(step).chain(last).collect()
}

/// Formats a round number, without the zeros that a measured value would have behind its point.
fn show_tick(value: f64) -> String {
    let shown = format_number(value);
    match shown.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') && value >= 1.0 => {
            whole.to_owned()
        }
        _ => shown,
    }
}

/// Returns four to eight round numbers from `low` to just beyond `high`.
fn round_steps(low: f64, high: f64) -> Vec<f64> {
    let span = if high > low { high - low } else { 1.0 };
    let rough = span / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (low / step).floor();
    (0..10)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|v| *v < high + step)
        .collect()
}

/// Returns powers of ten from below `low` to above `high`. With `finely` and few powers, also their double and
/// fivefold.
fn round_powers(low: f64, high: f64, finely: bool) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let last = last.max(first + 1);
    if !finely || last - first > FINE_POWERS_MAX {
        return (first..=last).map(|power| 10_f64.powi(power)).collect();
    }
    let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|it| it * 10_f64.powi(power)));
    let all: Vec<f64> = all.collect();
    // The last value that is not above `low`, the first one that is not below `high`, and at least one step.
    let begin = all.iter().rposition(|it| *it <= low).unwrap_or(0);
    let end = all.iter().position(|it| *it >= high).unwrap_or(all.len() - 1);
    all[begin..=end.max(begin + 1).min(all.len() - 1)].to_vec()
}

/// Escapes text for HTML and its attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line { name: "a <b>".to_owned(), colour: 0, dashed: false, points }
    }

    #[test]
    fn a_plot_holds_its_points_within_the_frame() {
        for y_logarithmic in [false, true] {
            let axes = Axes {
                title: "t",
                x: "s",
                y: "ms",
                x_ticks: &[],
                y_logarithmic,
                is_sparse: y_logarithmic,
            };
            let svg =
                svg(&axes, &[line(vec![(0.0, 0.0), (1.0, 3.0), (2.0, 700.0), (3.0, f64::NAN)])]);
            // The legend before it contains polylines too.
            let plot = svg.rsplit("<svg").next().unwrap();
            let points = plot.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{point}");
                assert!((TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y), "{point}");
            }
            assert!(svg.contains("a &lt;b&gt;"));
        }
    }

    #[test]
    fn logarithmic_axes_have_round_ends_around_their_values() {
        for (low, high, finely, expected) in [
            (3.0, 700.0, false, &[1.0, 10.0, 100.0, 1000.0][..]),
            (30.0, 700.0, true, &[20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]),
            (20.0, 20.0, true, &[20.0, 50.0]),
            (1.0, 1.0, false, &[1.0, 10.0]),
            (0.5, 90_000.0, true, &[0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]),
        ] {
            let ticks = round_powers(low, high, finely);
            assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
            let is_near = |(one, other): (&f64, &f64)| (one / other - 1.0).abs() < 1e-9;
            assert!(ticks.iter().zip(expected).all(is_near), "{ticks:?}");
        }
    }

    #[test]
    fn nothing_to_draw_is_nothing() {
        let axes =
            Axes { title: "t", x: "", y: "", x_ticks: &[], y_logarithmic: true, is_sparse: false };
        assert_eq!(svg(&axes, &[]), "");
        assert_eq!(svg(&axes, &[line(vec![(1.0, 0.0)])]), "");
        assert!(svg(&axes, &[line(vec![(1.0, 1.0)])]).contains("polyline"));
    }

    #[test]
    fn long_lines_are_thinned_and_keep_their_ends() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        let thin = thinned(points.clone());
        assert!(thin.len() <= POINTS_MAX && thin.first() == points.first());
        assert_eq!(thin.last(), points.last());
    }
}
