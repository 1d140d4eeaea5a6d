//! What a pickle holds, as data.

use std::fmt;
use std::sync::Arc;

/// What a pickle holds. Parts that the pickle shares are shared here too, so cloning is cheap; walking every path
/// of a hostile one is not, as with any such graph.
#[derive(Clone)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of up to 64 bits.
    Int(i64),
    /// A longer one: little-endian bytes, two's complement.
    BigInt(Arc<[u8]>),
    /// A float.
    Float(f64),
    /// Bytes, and Python 2's strings.
    Bytes(Arc<[u8]>),
    /// Text.
    Text(Arc<str>),
    /// A list.
    List(Arc<[Value]>),
    /// A tuple.
    Tuple(Arc<[Value]>),
    /// A set or frozen set.
    Set(Arc<[Value]>),
    /// A dict's pairs in order; of equal keys the last counts.
    Dict(Arc<[(Value, Value)]>),
    /// The name of a class or function.
    Global(Arc<Global>),
    /// What Python would have made by calling something.
    Object(Arc<Object>),
    /// A reference to something outside the pickle, by its id.
    Persistent(Arc<Value>),
}

/// The name of a class or function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// As in `collections`.
    pub module: String,
    /// As in `OrderedDict`.
    pub name: String,
}

/// A call that was not made: what would have been called, with what.
#[derive(Clone)]
pub struct Object {
    /// The class or function.
    pub callable: Value,
    /// Its arguments, a tuple.
    pub args: Value,
    /// Its arguments by name: a dict or nothing.
    pub keywords: Option<Value>,
    /// What it would have been given as its state.
    pub state: Option<Value>,
    /// What would have been appended to it.
    pub items: Vec<Value>,
    /// What would have been put into it by key.
    pub entries: Vec<(Value, Value)>,
}

impl fmt::Display for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

impl Object {
    /// The name of what would have been called.
    pub fn global(&self) -> Option<&Global> {
        match &self.callable {
            Value::Global(global) => Some(global),
            _ => None,
        }
    }

    /// Its arguments when what would have been called has this name, as in `collections.OrderedDict`.
    pub fn call_of(&self, name: &str) -> Option<&[Value]> {
        let global = self.global()?;
        let rest = name.strip_prefix(&global.module)?.strip_prefix('.')?;
        if rest == global.name { self.args.items() } else { None }
    }
}

impl Value {
    /// Text, or Python 2's text when it is valid UTF-8.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// An integer; a bool counts as one, as in Python.
    pub fn int(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            Value::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// A number that cannot be negative, such as a size.
    pub fn size(&self) -> Option<usize> {
        self.int().and_then(|n| usize::try_from(n).ok())
    }

    /// The elements of a list, tuple or set.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) | Value::Tuple(items) | Value::Set(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs of a dict, or of an object that is filled like one, as `OrderedDict` is.
    pub fn entries(&self) -> Option<&[(Value, Value)]> {
        match self {
            Value::Dict(entries) => Some(entries),
            Value::Object(object)
                if ["collections.OrderedDict", "collections.defaultdict"]
                    .iter()
                    .any(|name| object.call_of(name).is_some()) =>
            {
                Some(&object.entries)
            }
            _ => None,
        }
    }

    /// What a dict has under this text.
    ///
    /// ```
    /// let pickle = neurona::io::pickle::parse(b"(dS'lr'\nF0.5\ns.", "example".as_ref())?;
    /// assert!(matches!(pickle.get("lr"), Some(neurona::io::pickle::Value::Float(0.5))));
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn get(&self, key: &str) -> Option<&Value> {
        // Not by `text`, which would look through long bytes for valid UTF-8.
        let is_key = |k: &Value| match k {
            Value::Text(text) => **text == *key,
            Value::Bytes(bytes) => **bytes == *key.as_bytes(),
            _ => false,
        };
        self.entries()?.iter().rev().find(|(k, _)| is_key(k)).map(|(_, value)| value)
    }

    /// What kind of thing it is, for messages: `a list of 3`, `collections.OrderedDict`.
    pub fn kind(&self) -> String {
        match self {
            Value::None => "None".into(),
            Value::Bool(b) => if *b { "True" } else { "False" }.into(),
            Value::Int(n) => n.to_string(),
            Value::BigInt(bytes) => format!("an integer of {} bytes", bytes.len()),
            Value::Float(x) => x.to_string(),
            Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Value::Text(text) if text.len() <= 60 => format!("{text:?}"),
            Value::Text(text) => format!("a text of {} bytes", text.len()),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Tuple(items) => format!("a tuple of {}", items.len()),
            Value::Set(items) => format!("a set of {}", items.len()),
            Value::Dict(entries) => format!("a dict of {}", entries.len()),
            Value::Global(global) => format!("the name {global}"),
            Value::Object(object) => match object.global() {
                Some(global) => format!("an object of {global}"),
                None => "an object".into(),
            },
            Value::Persistent(_) => "a reference to another entry".into(),
        }
    }
}

/// Its outermost level only: shared parts would be printed as often as they are used.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.callable, self.args)
    }
}
