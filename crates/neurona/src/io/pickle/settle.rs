//! From values that refer to each other by place to values that own their parts.

use super::input::Problem;
use super::machine::{Call, Id, Node};
use super::{DEEPEST, Object, Value};

/// How far a node is.
enum Stage {
    Fresh,
    /// Its parts are being settled: whoever meets it now is one of them.
    Open,
    /// What it became, and how many levels it has.
    Done(Value, usize),
}

/// The value at `root`. Each node is settled once, however often it is referred to.
pub fn settle(nodes: Vec<Node>, root: Id) -> Result<Value, Problem> {
    let mut stages: Vec<Stage> = nodes.iter().map(|_| Stage::Fresh).collect();
    // By an explicit stack: a hostile pickle nests deeper than ours reaches.
    let mut waiting = vec![root];
    while let Some(&id) = waiting.last() {
        let node = &nodes[id as usize];
        match stages[id as usize] {
            Stage::Done(..) => {
                waiting.pop();
            }
            Stage::Fresh => {
                stages[id as usize] = Stage::Open;
                let before = waiting.len();
                let mut cyclic = false;
                parts(node, |part| match stages[part as usize] {
                    Stage::Fresh => waiting.push(part),
                    Stage::Open => cyclic = true,
                    Stage::Done(..) => {}
                });
                if cyclic {
                    return Err("its pickle has a value that contains itself".into());
                }
                if waiting.len() == before {
                    finish(node, id, &mut stages)?;
                }
            }
            Stage::Open => finish(node, id, &mut stages)?,
        }
    }
    match std::mem::replace(&mut stages[root as usize], Stage::Fresh) {
        Stage::Done(value, _) => Ok(value),
        // The loop ends when all that waited, the root first, is done.
        _ => Err("its pickle has no value".into()),
    }
}

/// Makes the value of a node whose parts are all done.
fn finish(node: &Node, id: Id, stages: &mut [Stage]) -> Result<(), Problem> {
    let (mut levels, mut ready) = (0, true);
    parts(node, |part| match &stages[part as usize] {
        Stage::Done(_, below) => levels = levels.max(*below),
        _ => ready = false,
    });
    // A part that was waiting twice, once below itself.
    if !ready {
        return Err("its pickle has a value that contains itself".into());
    }
    if levels >= DEEPEST {
        return Err(format!("its pickle nests deeper than {DEEPEST} levels"));
    }
    let value = value(node, stages);
    stages[id as usize] = Stage::Done(value, levels + 1);
    Ok(())
}

fn parts(node: &Node, mut visit: impl FnMut(Id)) {
    match node {
        Node::Leaf(_) => {}
        Node::List(items) | Node::Tuple(items) | Node::Set(items) => items.iter().copied().for_each(visit),
        Node::Dict(entries) => entries.iter().flat_map(|(k, v)| [*k, *v]).for_each(visit),
        Node::Persistent(id) => visit(*id),
        Node::Object(call) => {
            [call.callable, call.args].into_iter().for_each(&mut visit);
            call.keywords.iter().chain(&call.state).chain(&call.items).copied().for_each(&mut visit);
            call.entries.iter().flat_map(|(k, v)| [*k, *v]).for_each(visit);
        }
    }
}

fn value(node: &Node, stages: &[Stage]) -> Value {
    let one = |id: &Id| match &stages[*id as usize] {
        Stage::Done(value, _) => value.clone(),
        // `finish` has seen that all are done.
        _ => Value::None,
    };
    let pair = |(k, v): &(Id, Id)| (one(k), one(v));
    match node {
        Node::Leaf(value) => value.clone(),
        Node::List(items) => Value::List(items.iter().map(one).collect()),
        Node::Tuple(items) => Value::Tuple(items.iter().map(one).collect()),
        Node::Set(items) => Value::Set(items.iter().map(one).collect()),
        Node::Dict(entries) => Value::Dict(entries.iter().map(pair).collect()),
        Node::Persistent(id) => Value::Persistent(one(id).into()),
        Node::Object(call) => {
            let Call { callable, args, keywords, state, items, entries } = &**call;
            let object = Object {
                callable: one(callable),
                args: one(args),
                keywords: keywords.as_ref().map(one),
                state: state.as_ref().map(one),
                items: items.iter().map(one).collect(),
                entries: entries.iter().map(pair).collect(),
            };
            Value::Object(object.into())
        }
    }
}
