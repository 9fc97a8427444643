//! What a page of a run shows, by its own script.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bdrun_graph::draw;
use bdrun_graph::plan::{Action, plan};
use bdrun_graph::run::{Call, FileStore, Progress, Threads};
use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task, TaskId};

/// As much of a browser as the script asks for: what classes it gives to circles and boxes.
const BROWSER: &str = r#"
const make = () => ({ name: "", setAttribute(what, value) { if (what === "class") this.name = value; }, addEventListener() {} });
const shapes = { circle: [], rect: [] }, others = {};
for (let at = 0; at < TASKS; at++) { shapes.circle.push(make()); shapes.rect.push(make()); }
globalThis.document = { querySelectorAll: (of) => shapes[of], getElementById: (id) => others[id] ??= make() };
"#;

#[test]
fn what_is_kept_on_scratch_is_not_shown_as_gone() {
    let mut builder = Builder::default();
    let tasks: [(&str, u64, Output, &[&str]); 4] = [
        ("kept", 60, Output::Kept, &[]),
        ("part", 60, Output::No, &[]),
        ("large", 90, Output::Stored, &[]),
        ("late", 1, Output::Stored, &["part"]),
    ];
    for (key, bytes, output, inputs) in tasks {
        let task = Task::new(key, FunctionId(0), Inputs::Keys(inputs));
        builder.add(Task { bytes, output, ..task }).unwrap();
    }
    let graph = builder.build().unwrap();
    let order: Vec<TaskId> = graph.tasks().collect();
    let plan = plan(&graph, &order, 100).unwrap();
    assert!(
        plan.actions.contains(&Action::Write(TaskId(0))) && plan.actions.contains(&Action::Write(TaskId(1)))
    );
    assert!(!plan.actions.contains(&Action::Read(TaskId(0))), "it ends on scratch");
    let progress = Progress::traced();
    let store = FileStore::new(&std::env::temp_dir()).unwrap();
    let call = |call: Call, _: Vec<Arc<Vec<u8>>>| Ok(Arc::new(vec![0; graph.bytes(call.task) as usize]));
    Threads { compute: 1, transfer: 0 }.run(&graph, &plan, &store, &progress, call).unwrap();
    let page = draw::page(&graph, &order, &progress.take_events(), plan.budget).unwrap();
    let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let browser = BROWSER.replace("TASKS", &graph.len().to_string());
    let last = "show(events.length); console.log(shapes.rect.map((box) => box.name).join(' '));";
    let node = Command::new("node").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut node) = node else { return bdrun_skipped::skipped("node", "there is no node") };
    node.stdin.take().unwrap().write_all(format!("{browser}{script}{last}").as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "out gone gone gone");
}
