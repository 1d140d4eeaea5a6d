//! The stack machine that a pickle is a program for. Values under construction lie in one list and refer to each
//! other by place, so what a pickle shares stays shared and costs a number each time.

use super::input::{Input, Problem};
use super::opcode::*;
use super::scalar::scalar;
use super::trust::harmless;
use super::value::Global;
use super::{MOST_VALUES, Value, settle};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a module's, class's or function's name.
const LONGEST_NAME: usize = 400;

/// A value's place in the list.
pub type Id = u32;

/// A value under construction.
pub enum Node {
    /// Has no parts.
    Leaf(Value),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Set(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Object(Box<Call>),
    Persistent(Id),
}

/// A call that is not made.
pub struct Call {
    pub callable: Id,
    pub args: Id,
    pub keywords: Option<Id>,
    pub state: Option<Id>,
    pub items: Vec<Id>,
    pub entries: Vec<(Id, Id)>,
}

#[derive(Default)]
struct Machine {
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// Where on the stack the open marks are.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    pushed: usize,
}

/// Runs a whole pickle.
pub fn run(bytes: &[u8]) -> Result<Value, Problem> {
    let mut input = Input::new(bytes);
    let mut machine = Machine::default();
    loop {
        let at = input.at;
        if input.rest() == 0 {
            return Err(format!("its pickle was cut off: it ends at byte {at} without a STOP"));
        }
        let opcode = input.byte()?;
        let place = || match name(opcode) {
            Some(name) => format!("at byte {at} ({name})"),
            None => format!("at byte {at} (opcode {opcode:#04x})"),
        };
        let step = machine.step(opcode, &mut input).map_err(|problem| match problem {
            Stop::Broken(problem) => format!("its pickle is broken {}: {problem}", place()),
            Stop::Refused(problem) => format!("its pickle is refused {}: {problem}", place()),
        })?;
        if let Some(root) = step {
            if input.rest() > 0 {
                return Err(format!("its pickle ends at byte {}, but {} bytes follow", input.at, input.rest()));
            }
            return settle::settle(machine.nodes, root);
        }
    }
}

/// Why a pickle is not read on.
enum Stop {
    Broken(Problem),
    Refused(Problem),
}

impl<T: Into<Problem>> From<T> for Stop {
    fn from(problem: T) -> Self {
        Stop::Broken(problem.into())
    }
}

impl Machine {
    /// Does what an opcode says; gives the result at the last one.
    fn step(&mut self, opcode: u8, input: &mut Input<'_>) -> Result<Option<Id>, Stop> {
        match opcode {
            PROTO => match input.byte()? {
                0..=5 => {}
                version => return Err(format!("protocol {version} is not known; known are 0 to 5").into()),
            },
            FRAME => {
                let length = u64::from_le_bytes(input.array()?);
                if length > input.rest() as u64 {
                    return Err(format!("it was cut off: a frame of {length} bytes should follow").into());
                }
            }
            STOP => {
                let root = self.pop()?;
                let left = self.stack.len() + self.marks.len();
                return if left == 0 { Ok(Some(root)) } else { Err(format!("{left} values are left over").into()) };
            }
            MARK => {
                self.count()?;
                self.marks.push(self.stack.len());
            }
            POP if self.marks.last() == Some(&self.stack.len()) => drop(self.marks.pop()),
            POP => drop(self.pop()?),
            POP_MARK => drop(self.marked()?),
            DUP => {
                let top = self.top()?;
                self.push(top)?;
            }
            PUT => {
                let key = input.number()?;
                self.remember(key)?;
            }
            BINPUT => self.remember(input.byte()?.into())?,
            LONG_BINPUT => self.remember(u32::from_le_bytes(input.array()?))?,
            MEMOIZE => self.remember(self.memo.len() as u32)?,
            GET => {
                let key = input.number()?;
                self.recall(key)?;
            }
            BINGET => self.recall(input.byte()?.into())?,
            LONG_BINGET => self.recall(u32::from_le_bytes(input.array()?))?,
            GLOBAL => {
                let (module, name) = (input.text_line()?, input.text_line()?);
                self.global(module, name)?;
            }
            STACK_GLOBAL => self.stack_global()?,
            INST => {
                let (module, name) = (input.text_line()?, input.text_line()?);
                let args = self.marked()?;
                self.global(module, name)?;
                let callable = self.pop()?;
                self.call_with(callable, args)?;
            }
            OBJ => {
                let mut args = self.marked()?;
                if args.is_empty() {
                    return Err("there is no class to make an object of".into());
                }
                let callable = args.remove(0);
                self.call_with(callable, args)?;
            }
            REDUCE | NEWOBJ => {
                let (args, callable) = (self.pop()?, self.pop()?);
                self.call(callable, args, None)?;
            }
            NEWOBJ_EX => {
                let (keywords, args, callable) = (self.pop()?, self.pop()?, self.pop()?);
                self.call(callable, args, Some(keywords))?;
            }
            BUILD => {
                let (state, target) = (self.pop()?, self.top()?);
                match &mut self.nodes[target as usize] {
                    Node::Object(call) => call.state = Some(state),
                    _ => return Err("state is for an object, and there is none".into()),
                }
            }
            EXT1 | EXT2 | EXT4 => return Err("registered extensions mean nothing outside the program".into()),
            NEXT_BUFFER | READONLY_BUFFER => return Err("buffers outside the pickle are not there".into()),
            PERSID => {
                let id = self.leaf(Value::Text(input.text_line()?.into()))?;
                self.make(Node::Persistent(id))?;
            }
            BINPERSID => {
                let id = self.pop()?;
                self.make(Node::Persistent(id))?;
            }
            _ => match scalar(opcode, input)? {
                Some(value) => self.make(Node::Leaf(value))?,
                None => self.collect(opcode)?,
            },
        }
        Ok(None)
    }

    /// Opcodes that make or fill lists, tuples, sets and dicts.
    fn collect(&mut self, opcode: u8) -> Result<(), Stop> {
        match opcode {
            EMPTY_LIST => self.make(Node::List(Vec::new())),
            EMPTY_TUPLE => self.make(Node::Tuple(Vec::new())),
            EMPTY_SET => self.make(Node::Set(Vec::new())),
            EMPTY_DICT => self.make(Node::Dict(Vec::new())),
            LIST => self.marked().and_then(|items| self.make(Node::List(items))),
            TUPLE => self.marked().and_then(|items| self.make(Node::Tuple(items))),
            FROZENSET => self.marked().and_then(|items| self.make(Node::Set(items))),
            DICT => self.marked().and_then(pairs).and_then(|entries| self.make(Node::Dict(entries))),
            TUPLE1 | TUPLE2 | TUPLE3 => {
                let n = usize::from(opcode - TUPLE1 + 1);
                let items = self.pop_many(n)?;
                self.make(Node::Tuple(items))
            }
            APPEND => self.pop_many(1).and_then(|items| self.append(items)),
            APPENDS | ADDITEMS => self.marked().and_then(|items| self.append(items)),
            SETITEM => self.pop_many(2).and_then(|items| self.set(items)),
            SETITEMS => self.marked().and_then(|items| self.set(items)),
            _ => Err("it is not known".into()),
        }
    }

    fn append(&mut self, items: Vec<Id>) -> Result<(), Stop> {
        let target = self.top()?;
        match &mut self.nodes[target as usize] {
            Node::List(list) | Node::Set(list) => list.extend(items),
            Node::Object(call) => call.items.extend(items),
            _ => return Err("there is no list to append to".into()),
        }
        Ok(())
    }

    fn set(&mut self, items: Vec<Id>) -> Result<(), Stop> {
        let (entries, target) = (pairs(items)?, self.top()?);
        match &mut self.nodes[target as usize] {
            Node::Dict(dict) => dict.extend(entries),
            Node::Object(call) => call.entries.extend(entries),
            _ => return Err("there is no dict to put entries into".into()),
        }
        Ok(())
    }

    /// Whether there is room for one more value or reference.
    fn count(&mut self) -> Result<(), Stop> {
        self.pushed += 1;
        if self.pushed > MOST_VALUES {
            return Err(format!("it has more than {MOST_VALUES} values").into());
        }
        Ok(())
    }

    fn push(&mut self, id: Id) -> Result<(), Stop> {
        self.count()?;
        self.stack.push(id);
        Ok(())
    }

    fn make(&mut self, node: Node) -> Result<(), Stop> {
        // Every node is counted, so that a place always fits its number.
        let id = self.nodes.len() as Id;
        self.push(id)?;
        self.nodes.push(node);
        Ok(())
    }

    /// A node that is not on the stack.
    fn leaf(&mut self, value: Value) -> Result<Id, Stop> {
        self.make(Node::Leaf(value))?;
        self.pop()
    }

    /// How deep the stack may be popped: not past the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id, Stop> {
        if self.stack.len() <= self.floor() {
            return Err("its stack is empty".into());
        }
        self.stack.pop().ok_or_else(|| "its stack is empty".into())
    }

    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>, Stop> {
        if self.stack.len() - self.floor() < n {
            return Err(format!("its stack holds fewer than {n} values").into());
        }
        Ok(self.stack.split_off(self.stack.len() - n))
    }

    fn top(&self) -> Result<Id, Stop> {
        self.stack[self.floor()..].last().copied().ok_or_else(|| "its stack is empty".into())
    }

    /// Everything above the last mark, which goes too.
    fn marked(&mut self) -> Result<Vec<Id>, Stop> {
        let mark = self.marks.pop().ok_or("there is no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn remember(&mut self, key: u32) -> Result<(), Stop> {
        let top = self.top()?;
        self.count()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Result<(), Stop> {
        let id = *self.memo.get(&key).ok_or_else(|| format!("nothing was remembered as {key}"))?;
        self.push(id)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), Stop> {
        // A name may be used often: it is copied each time.
        if module.len().max(name.len()) > LONGEST_NAME {
            return Err("the name of a class or function is too long".into());
        }
        let global = Global { module: module.into(), name: name.into() };
        if !harmless(&global) {
            return Err(Stop::Refused(format!("it names {global}, which is no data")));
        }
        self.make(Node::Leaf(Value::Global(Arc::new(global))))
    }

    fn stack_global(&mut self) -> Result<(), Stop> {
        let (name, module) = (self.pop()?, self.pop()?);
        let text = |id: Id| match &self.nodes[id as usize] {
            Node::Leaf(Value::Text(text)) => Ok(text.clone()),
            _ => Err(Stop::from("the name of a class or function is not text")),
        };
        let (module, name) = (text(module)?, text(name)?);
        self.global(&module, &name)
    }

    fn call_with(&mut self, callable: Id, args: Vec<Id>) -> Result<(), Stop> {
        self.make(Node::Tuple(args))?;
        let args = self.pop()?;
        self.call(callable, args, None)
    }

    fn call(&mut self, callable: Id, args: Id, keywords: Option<Id>) -> Result<(), Stop> {
        let call = Call { callable, args, keywords, state: None, items: Vec::new(), entries: Vec::new() };
        self.make(Node::Object(Box::new(call)))
    }
}

fn pairs(items: Vec<Id>) -> Result<Vec<(Id, Id)>, Stop> {
    if items.len() % 2 == 1 {
        return Err("a key has no value".into());
    }
    Ok(items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}
