//! What is replaced and what is left alone.

use super::*;
use proptest::prelude::*;

const NONE: Names<'static> = Names { parts: false, header: &[] };
const PARTS: Names<'static> = Names { parts: true, header: &[] };

fn filled(text: &str, names: &Names<'_>, line: &str) -> String {
    let part = names.parts.then(|| Part::new(line.as_bytes(), Some(b"\t")));
    let template = Template::parse(OsStr::new(text), names).unwrap();
    template.render(7, 12, part).into_string().unwrap()
}

#[test]
fn rank_and_size_work_everywhere() {
    for names in [NONE, PARTS] {
        assert_eq!(filled("--part={rank}/{size}", &names, "x"), "--part=7/12");
        assert_eq!(filled("{rank}{rank}", &names, "x"), "77");
    }
}

#[test]
fn what_other_programs_mean_by_braces_is_left_alone() {
    for text in [
        "{print $1}",
        "{a: 1}",
        "{\"rank\": 1}",
        "f\"{x}\"",
        "[a-z]{2,3}",
        "${rank}",
        "${rank}${rank:-1}",
        "${{rank}}",
        "$",
        "{Rank}",
        "{ rank }",
        "{rank",
        "rank}",
        "{{}",
        "}{",
        "{0}",
        "{01}",
        "{#.}",
        "{,}",
        "{x{y}z}",
        "",
    ] {
        // With parts, `{{}` holds a placeholder: `{` and `{}`.
        if text != "{{}" {
            assert_eq!(filled(text, &PARTS, "x"), text);
        }
        assert_eq!(filled(text, &NONE, "x"), text);
    }
    for text in ["{}", "{1}", "{.}", "{/}", "{//}", "{/.}", "{#}", "{name}"] {
        assert_eq!(filled(text, &NONE, "x"), text, "not without parts");
    }
}

#[test]
fn placeholders_of_gnu_parallel() {
    for (text, line, expected) in [
        ("{}", "dir/a.tar.gz", "dir/a.tar.gz"),
        ("{.}", "dir/a.tar.gz", "dir/a.tar"),
        ("{.}", "dir.d/a", "dir.d/a"),
        ("{/}", "dir/a.tar.gz", "a.tar.gz"),
        ("{/}", "a", "a"),
        ("{//}", "dir/sub/a.gz", "dir/sub"),
        ("{//}", "a.gz", "."),
        ("{//}", "/a.gz", "/"),
        ("{//}", "//", "/"),
        ("{//}", "a//b/", "a"),
        ("{//}", "", "."),
        ("{/.}", "dir/a.tar.gz", "a.tar"),
        ("{#}", "x", "8"),
        ("{1}-{2}-{1}", "one\ttwo", "one-two-one"),
        ("{2/.}", "x\ta/b.c", "b"),
        ("{2//}", "x\ta/b.c", "a"),
        ("<{2}>", "x\t", "<>"),
        ("{{}} {{1}} {{rank}} {{x}}", "x", "{} {1} {rank} {{x}}"),
        ("{{{}}}", "x", "{{}}"),
        ("{a}{}", "x", "{a}x"),
        ("{\"a\":{1}}", "5", "{\"a\":5}"),
    ] {
        assert_eq!(filled(text, &PARTS, line), expected, "{text} of {line}");
    }
}

#[test]
fn columns_by_name() {
    let header = ["path", "size", "a.b", "", "5"].map(|name| name.as_bytes().to_vec());
    let names = Names { parts: true, header: &header };
    assert_eq!(filled("{path} {path/} {a.b} {2} {}", &names, "a/b\t5\tc"), "a/b b c 5 a/b\t5\tc");
    let error = Template::parse(OsStr::new("{other}"), &names).unwrap_err();
    assert!(error.contains("{other} names no column") && error.contains("{{other}}"), "{error}");
    assert_eq!(filled("{{other}} {an other}", &names, "x"), "{other} {an other}");
    let error = Template::parse(OsStr::new("{size}"), &names).unwrap_err();
    assert!(error.contains("write {2} for the column") && error.contains("$BDRUN_SIZE"), "{error}");
    assert_eq!(Template::parse(OsStr::new("{5}{3}"), &names).unwrap().columns(), 5);
}

#[test]
fn what_a_template_needs_is_known() {
    let parse = |text: &str| Template::parse(OsStr::new(text), &PARTS).unwrap();
    for (text, any, part, differs, columns) in [
        ("x", false, false, false, 0),
        ("{size}", true, false, false, 0),
        ("{rank}", true, false, true, 0),
        ("{#}", true, false, true, 0),
        ("{/}", true, true, true, 0),
        ("{3}{1}", true, true, true, 3),
        ("{{3}}", false, false, false, 0),
    ] {
        let t = parse(text);
        assert_eq!(
            (t.has_placeholders(), t.names_part(), t.depends_on_rank(), t.columns()),
            (any, part, differs, columns),
            "{text}"
        );
    }
}

proptest! {
    /// Any bytes are a template, and without known names they stay what they are.
    #[test]
    fn without_known_names_nothing_changes(text in proptest::collection::vec(any::<u8>(), 0..40)) {
        let text = OsString::from_vec(text);
        let known = text.as_bytes().windows(6).any(|w| w == b"{rank}" || w == b"{size}");
        let template = Template::parse(&text, &NONE).unwrap();
        if !known {
            prop_assert_eq!(template.render(3, 4, None), text);
        }
    }

    /// Doubling the braces of every placeholder gives the text itself, whatever stands between.
    #[test]
    fn doubled_braces_stand_for_single_ones(
        pieces in proptest::collection::vec(
            prop_oneof![
                "[a-z $\"/.:]{0,4}",
                Just("\u{1}{}".to_owned()), Just("\u{1}{1}".to_owned()), Just("\u{1}{rank}".to_owned()),
                Just("\u{1}{2/.}".to_owned()), Just("{a b}".to_owned()),
            ],
            0..8,
        ),
    ) {
        // A placeholder is marked by the byte 1 before it, which also keeps it apart from a dollar sign.
        let text = pieces.concat();
        let doubled: String = pieces
            .iter()
            .map(|piece| match piece.strip_prefix('\u{1}') {
                Some(placeholder) => format!("\u{1}{{{placeholder}}}"),
                None => piece.clone(),
            })
            .collect();
        prop_assert_eq!(filled(&doubled, &PARTS, "line"), text);
    }

    /// Arguments of random pieces are replaced piece by piece: none reaches into its neighbour.
    #[test]
    fn pieces_are_replaced_each_for_itself(
        pieces in proptest::collection::vec(
            prop_oneof![
                "[a-z /.:]{1,3}".prop_map(|t| (t.clone(), t)),
                Just(("{}".to_owned(), "a/b.c\tz".to_owned())), Just(("{1/}".to_owned(), "b.c".to_owned())),
                Just(("{2}".to_owned(), "z".to_owned())), Just(("{rank}".to_owned(), "7".to_owned())),
                Just(("${rank}".to_owned(), "${rank}".to_owned())), Just(("{x y}".to_owned(), "{x y}".to_owned())),
            ],
            0..10,
        ),
    ) {
        let text: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
        let expected: String = pieces.iter().map(|(_, value)| value.as_str()).collect();
        prop_assert_eq!(filled(&text, &PARTS, "a/b.c\tz"), expected);
    }

    /// A path is its directory and its basename, as long as it does not end with a slash.
    #[test]
    fn directory_and_basename_make_the_path(path in "(/)?([a-z.]{1,3}/){0,3}[a-z.]{1,4}") {
        let (dir, base) = (Edit::Directory.of(path.as_bytes()), Edit::Base.of(path.as_bytes()));
        let mut joined = if dir == b"." && !path.starts_with("./") { Vec::new() } else { dir.to_vec() };
        if !joined.is_empty() && joined != b"/" {
            joined.push(b'/');
        }
        joined.extend_from_slice(base);
        prop_assert_eq!(String::from_utf8(joined).unwrap(), path);
    }
}
