//! A number over time as lines of text, 80 columns at most.

use crate::units::{Bytes, Span};

/// Columns and lines of the picture itself.
const WIDTH: usize = 56;
const HEIGHT: usize = 8;

/// Bytes needed from each of these seconds on, until `end`, against the budget. How long it takes is only
/// said if `is_known`.
#[must_use]
pub fn curve(held: &[(f64, u64)], end: f64, is_known: bool, budget: u64) -> String {
    let columns = columns(held, end);
    let peak = columns.iter().copied().fold(0.0, f64::max);
    // A budget that is far away would leave nothing to see.
    let is_near = budget as f64 <= 4.0 * peak;
    let top = if is_near { peak.max(budget as f64) } else { peak.max(1.0) };
    let step = top / HEIGHT as f64;
    let row_of = |bytes: f64| ((bytes / step).ceil() as usize).clamp(1, HEIGHT);
    let mut text = String::new();
    for row in (1..=HEIGHT).rev() {
        let is_budget = is_near && row == row_of(budget as f64);
        let label = match row {
            _ if is_budget => Bytes(budget).to_string(),
            HEIGHT => Bytes(top as u64).to_string(),
            _ => String::new(),
        };
        let empty = if is_budget { '-' } else { ' ' };
        let cell = |&bytes: &f64| if bytes > 0.0 && row_of(bytes) >= row { '#' } else { empty };
        let cells: String = columns.iter().map(cell).collect();
        let line = format!("  {label:>10} |{cells}{}", if is_budget { " budget" } else { "" });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&format!("  {:>10} +{}\n", "0 B", "-".repeat(WIDTH)));
    let last = if is_known { Span(end).to_string() } else { "the end".into() };
    text.push_str(&format!("  {:>10}  0{last:>rest$}\n", "", rest = WIDTH - 1));
    if !is_near {
        text.push_str(&format!("  The budget, {}, is far above.\n", Bytes(budget)));
    }
    text
}

/// The most that is held in each column.
fn columns(held: &[(f64, u64)], end: f64) -> Vec<f64> {
    let mut columns = vec![0.0f64; WIDTH];
    let at = |seconds: f64| ((seconds / end.max(f64::MIN_POSITIVE) * WIDTH as f64) as usize).min(WIDTH - 1);
    let ends = held.iter().skip(1).map(|next| next.0).chain([end]);
    for (&(from, bytes), until) in held.iter().zip(ends) {
        let (first, last) = (at(from), at(until));
        // What ends where a column begins is not in it.
        let last = if last > first && last as f64 >= until / end * WIDTH as f64 { last - 1 } else { last };
        for column in &mut columns[first..=last] {
            *column = column.max(bytes as f64);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn steps_against_the_budget() {
        let held = [(0.0, 0), (10.0, 40 * MIB), (20.0, 80 * MIB), (30.0, 10 * MIB)];
        let text = curve(&held, 40.0, true, 80 << 20);
        let expected = "    80.0 MiB |----------------------------##############-------------- budget
             |                            ##############
             |                            ##############
             |                            ##############
             |              ############################
             |              ############################
             |              ############################
             |              ##########################################
         0 B +--------------------------------------------------------
              0                                                 40.0 s
";
        assert_eq!(text, expected, "\n{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn more_than_the_budget_and_far_less() {
        let text = curve(&[(0.0, 160 * MIB)], 1.0, false, 80 << 20);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("   160.0 MiB |###"), "{text}");
        assert!(lines[4].starts_with("    80.0 MiB |###") && lines[4].ends_with("# budget"), "{text}");
        assert!(text.contains("the end\n") && !text.contains("1.0 s"), "{text}");
        let text = curve(&[(0.0, 2 * MIB)], 1.0, true, 1 << 40);
        assert!(text.ends_with("The budget, 1.00 TiB, is far above.\n"), "{text}");
        assert!(text.starts_with("     2.0 MiB |###"), "{text}");
        assert!(curve(&[], 0.0, true, 1 << 30).lines().count() > HEIGHT, "nothing is no mistake");
        for text in
            [curve(&[(0.0, 100_000_000_000_000_000)], 1e9, true, 1023 << 30), curve(&[], 0.0, false, 0)]
        {
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }
}
