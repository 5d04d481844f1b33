//! Lines on axes, as SVG.

use std::fmt::Write as _;

use crate::units::show_number;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// Points of one line; more would not be seen on this width.
const POINTS_MAX: usize = 640;

/// Lines that can be told apart; further ones begin anew.
pub(super) const COLOURS: usize = 8;

/// One line.
pub(super) struct Line {
    pub(super) name: String,
    /// Place of its colour.
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// What the axes say.
pub(super) struct Axes<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// Places on the x axis that are named; those of round numbers if there are none.
    pub(super) x_ticks: &'a [(f64, &'a str)],
    /// Powers of ten at equal distances.
    pub(super) y_logarithmic: bool,
}

/// Draws the lines; nothing where there is nothing to draw.
pub(super) fn svg(axes: &Axes<'_>, lines: &[Line]) -> String {
    let finite = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points
            .iter()
            .copied()
            .filter(|(x, y)| x.is_finite() && y.is_finite() && (!axes.y_logarithmic || *y > 0.0))
            .collect()
    };
    let lines: Vec<(&Line, Vec<(f64, f64)>)> =
        lines.iter().map(|line| (line, thinned(finite(&line.points)))).collect();
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    if all().next().is_none() {
        return String::new();
    }
    let range = |value: fn((f64, f64)) -> f64| {
        all().map(value).fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (mut x_low, mut x_high) = range(|point| point.0);
    if let (Some(first), Some(last)) = (axes.x_ticks.first(), axes.x_ticks.last()) {
        (x_low, x_high) = (x_low.min(first.0), x_high.max(last.0));
    }
    let (y_min, y_max) = range(|point| point.1);
    let (y_low, y_high, y_ticks) = if axes.y_logarithmic {
        let (low, high) = (y_min.log10().floor(), y_max.log10().ceil());
        let high = if high > low { high } else { low + 1.0 };
        let ticks = (low as i32..=high as i32).map(|power| 10_f64.powi(power)).collect();
        (low, high, ticks)
    } else {
        let ticks = round_steps(0.0, y_max.max(f64::MIN_POSITIVE));
        (0.0, ticks.last().copied().unwrap_or(1.0), ticks)
    };
    let x_of = |x: f64| {
        let span = if x_high > x_low { x_high - x_low } else { 1.0 };
        LEFT + (x - x_low) / span * (WIDTH - LEFT - RIGHT)
    };
    let y_of = |y: f64| {
        let y = if axes.y_logarithmic { y.log10() } else { y };
        HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
    };

    let mut out = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(axes.title),
        escape(axes.title)
    );
    for tick in y_ticks {
        let y = y_of(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            show_number(tick)
        );
    }
    let round;
    let x_ticks: &[(f64, String)] = {
        round = if axes.x_ticks.is_empty() {
            let steps = round_steps(x_low, x_high).into_iter().filter(|x| *x <= x_high);
            steps.map(|x| (x, show_number(x))).collect::<Vec<_>>()
        } else {
            axes.x_ticks.iter().map(|(x, name)| (*x, (*name).to_owned())).collect()
        };
        &round
    };
    for (x, name) in x_ticks {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x_of(*x),
            HEIGHT - BOTTOM + 16.0,
            escape(name)
        );
    }
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
    for (line, points) in &lines {
        let dash = if line.dashed { " dashed" } else { "" };
        let _ = write!(out, "<polyline class=\"c{}{dash}\" points=\"", line.colour % COLOURS);
        for (x, y) in points {
            let _ = write!(out, "{:.1},{:.1} ", x_of(*x), y_of(*y));
        }
        let _ = write!(out, "\"><title>{}</title></polyline>", escape(&line.name));
    }
    out.push_str("</svg></figure>");
    out
}

/// At most as many points as can be seen, first and last among them.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let step = points.len().div_ceil(POINTS_MAX - 1);
    let last = points.last().copied();
    points.into_iter().step_by(step).chain(last).collect()
}

/// Round numbers, four to eight of them, from `low` to just beyond `high`.
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

/// Text as it may stand in HTML and its attributes.
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
            let axes = Axes { title: "t", x: "s", y: "ms", x_ticks: &[], y_logarithmic };
            let svg =
                svg(&axes, &[line(vec![(0.0, 0.0), (1.0, 3.0), (2.0, 700.0), (3.0, f64::NAN)])]);
            let points = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
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
    fn nothing_to_draw_is_nothing() {
        let axes = Axes { title: "t", x: "", y: "", x_ticks: &[], y_logarithmic: true };
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
