//! Descriptions as others write them: of numbers that are none Python makes bare words, which JSON does not
//! have.

use serde_json::Value;

/// Parses a text. Those words become strings, as which fill values have them.
pub(super) fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&quoted(text)))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (between, behind) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
        let (string, behind) = behind.split_at(string_len(behind));
        let words = between.replace("NaN", "\"NaN\"").replace("Infinity", "\"Infinity\"");
        quoted += &words.replace("-\"Infinity\"", "\"-Infinity\"");
        quoted += string;
        rest = behind;
    }
    quoted
}

/// How long the string is that begins here.
fn string_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The text of an object without its members of this name. All else stays as it is, letter by letter: those
/// words, and numbers that are too long.
pub(super) fn without(text: &str, name: &str) -> String {
    // Its braces, and the commas between its members.
    let mut bounds = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    while at < text.len() {
        let is_bound = match text.as_bytes()[at] {
            b'"' => {
                at += string_len(&text[at..]);
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                depth == 1
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                depth == 0
            }
            byte => byte == b',' && depth == 1,
        };
        if is_bound {
            bounds.push(at);
        }
        at += 1;
    }
    let [first, .., last] = bounds[..] else { return text.into() };
    let name = format!("\"{name}\"");
    let members = bounds.windows(2).map(|pair| &text[pair[0] + 1..pair[1]]);
    let kept: Vec<&str> = members.filter(|member| !member.trim_start().starts_with(&name)).collect();
    [&text[..=first], &kept.join(","), &text[last..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_python_are_read() {
        let text = r#"{"NaN": [NaN, -Infinity,Infinity, 1e3], "x\"-NaN\\": "é NaN, \" Infinity", "y": -1}"#;
        let plain = text.replace("[NaN, -Infinity,Infinity", r#"["NaN", "-Infinity", "Infinity""#);
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(&plain).unwrap());
        for wrong in ["", "{", "NaNNaN", "-NaN", "1Infinity", "nan", "\"\\é", "\"NaN", "[NaN"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_but_a_member_stays() {
        let x = r#""x": {"copies": [1, "}\""], "y": NaN}"#;
        let number = r#" "z": 12345678901234567890.10"#;
        for (text, rest) in [
            (
                format!("{{{x}, \"copies\" : {{\"copies\": {{{x}}}}},{number}}}\n"),
                format!("{{{x},{number}}}\n"),
            ),
            (format!("{{ \"copies\": null, {x}, \"copies\": [[{{{x}}}]] }}"), format!("{{ {x}}}")),
            (r#"{"copies": ","}"#.into(), "{}".into()),
            ("{}".into(), "{}".into()),
            ("NaN".into(), "NaN".into()),
        ] {
            assert_eq!(without(&text, "copies"), rest);
        }
    }
}
