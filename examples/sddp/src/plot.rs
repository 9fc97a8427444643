//! How the bounds approached each other, as SVG.

use std::fmt::Write;

use crate::bounds::Iteration;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Steps of 1, 2 or 5 times a power of ten, some five of them up to `span`.
fn step(span: f64) -> f64 {
    let rough = (span / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

/// Multiples of `step` from `low` to `high`.
fn ticks(low: f64, high: f64, step: f64) -> impl Iterator<Item = f64> {
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(move |tick| tick as f64 * step)
}

/// A picture of the lower bound, of the mean cost of each forward pass, and of its 95 % confidence interval.
/// `title` is that of the case. Empty without iterations.
pub fn svg(title: &str, history: &[Iteration]) -> String {
    let finite = |value: f64, or: f64| if value.is_finite() { value } else { or };
    let half = |iteration: &Iteration| finite(iteration.upper.half_width(), 0.0);
    let ends =
        history.iter().flat_map(|one| [one.lower, one.upper.mean + half(one), one.upper.mean - half(one)]);
    let (low, high) =
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
    let (low, high) =
        if low < high { (low, high) } else { (finite(low, 0.0) - 0.5, finite(high, 0.0) + 0.5) };
    let last = history.len().max(2) as f64;
    let x = |number: f64| LEFT + (number - 1.0) / (last - 1.0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let line = |value: &dyn Fn(&Iteration) -> f64| {
        let point = |one: &Iteration| format!("{:.1},{:.1}", x(one.number as f64), y(value(one)));
        history.iter().map(point).collect::<Vec<_>>().join(" ")
    };
    let up = line(&|one| one.upper.mean + half(one));
    let down = line(&|one| one.upper.mean - half(one)).split(' ').rev().collect::<Vec<_>>().join(" ");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}: bounds in M$</text>\n"
    );
    let mut add = |text: String| _ = writeln!(out, "{text}");
    let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let rise = step(high - low);
    let digits = (-rise.log10().floor()).max(0.0) as usize;
    for value in ticks(low, high, rise) {
        let at = y(value);
        add(format!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>"));
        add(format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.digits$}</text>",
            LEFT - 6.0,
            at + 4.0
        ));
    }
    for number in ticks(1.0, last, step(last).max(1.0)) {
        add(format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{number}</text>",
            x(number),
            floor + 18.0
        ));
    }
    add(format!("<path d=\"M{LEFT} {TOP}V{floor}H{right}\" fill=\"none\" stroke=\"black\"/>"));
    add(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">iteration</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0
    ));
    add(format!("<polygon points=\"{up} {down}\" fill=\"#f4a58266\"/>"));
    let mean = line(&|one| one.upper.mean);
    add(format!("<polyline points=\"{mean}\" fill=\"none\" stroke=\"#ca0020\"/>"));
    let lower = line(&|one| one.lower);
    add(format!("<polyline points=\"{lower}\" fill=\"none\" stroke=\"#0571b0\" stroke-width=\"2\"/>"));
    for (at, colour, text) in
        [(0.0, "#0571b0", "lower bound"), (110.0, "#ca0020", "mean of the forward pass, 95 % interval")]
    {
        let at = WIDTH - 400.0 + at;
        add(format!("<path d=\"M{at} 18h18\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
        add(format!("<text x=\"{}\" y=\"22\">{text}</text>", at + 23.0));
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Estimate;

    #[test]
    fn steps_are_round_and_some_five() {
        assert_eq!([1.0, 9.0, 24.0, 51.0, 0.3].map(step), [0.2, 2.0, 5.0, 20.0, 0.1]);
        assert_eq!(ticks(1.5, 9.0, 2.0).collect::<Vec<_>>(), [2.0, 4.0, 6.0, 8.0]);
    }

    #[test]
    fn every_iteration_is_inside_the_picture() {
        let history: Vec<Iteration> = (1..=30)
            .map(|number| {
                let lower = 100.0 - 50.0 / number as f64;
                let upper = Estimate { count: 10, mean: 110.0 + 30.0 / number as f64, deviation: 9.0 };
                Iteration { number, lower, upper, cuts: 0 }
            })
            .collect();
        let picture = svg("a < b & c", &history);
        assert!(picture.contains("a &lt; b &amp; c"));
        let mut count = 0;
        for points in picture.split("points=\"").skip(1).map(|rest| rest.split('"').next().expect("an end")) {
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').expect("two numbers");
                let (x, y): (f64, f64) = (x.parse().expect("a number"), y.parse().expect("a number"));
                assert!(
                    (LEFT - 0.1..=WIDTH).contains(&x) && (TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y)
                );
                count += 1;
            }
        }
        assert_eq!(count, 4 * 30);
        assert!(svg("none", &[]).ends_with("</svg>\n") && svg("one", &history[..1]).contains("polyline"));
    }
}
