//! What all optimizers share: parameters in groups, their state, and how often each was updated.

use super::Group;
use crate::graph::cell::Cell;
use crate::graph::engine;
use crate::graph::node::Inputs;
use crate::io::StateDict;
use crate::nn::Parameter;
use crate::ops::Op;
use crate::tensor::{DType, Meta, Number, no_grad};
use crate::{Error, Result, Tensor};
use std::collections::HashMap;

pub(super) struct Slots {
    pub parameters: Vec<Parameter>,
    /// What each parameter's state is saved under.
    names: Vec<String>,
    /// Which group each belongs to.
    group: Vec<usize>,
    /// Learning rate and weight decay of each group, where they are its own.
    own: Vec<(Option<f64>, Option<f64>)>,
    /// The learning rate at the start, which the groups' own are in proportion to.
    base: f64,
    pub lr: f64,
    pub weight_decay: f64,
    state: Vec<Vec<Cell>>,
    steps: Vec<u64>,
}

impl Slots {
    pub fn new(groups: Vec<Group>, lr: f64) -> Self {
        let own = groups.iter().map(|g| (g.lr, g.weight_decay)).collect();
        let group = groups.iter().enumerate().flat_map(|(i, g)| vec![i; g.parameters.len()]).collect();
        let parameters: Vec<Parameter> = groups.into_iter().flat_map(|g| g.parameters).collect();
        let count = parameters.len();
        let (state, steps) = (vec![Vec::new(); count], vec![0; count]);
        let names = names(&parameters);
        Slots { parameters, names, group, own, base: lr, lr, weight_decay: 0.0, state, steps }
    }

    /// The learning rate and the weight decay of a parameter. A group's own rate follows the changes of the
    /// optimizer's in proportion.
    pub fn rates(&self, i: usize) -> (f64, f64) {
        let (lr, decay) = self.own[self.group[i]];
        let factor = if self.base == 0.0 { 1.0 } else { self.lr / self.base };
        (lr.map_or(self.lr, |own| own * factor), decay.unwrap_or(self.weight_decay))
    }

    /// The parameters that have a gradient, by place; each has now taken one more step.
    pub fn due(&mut self) -> Vec<(usize, Tensor)> {
        let due: Vec<(usize, Tensor)> =
            self.parameters.iter().enumerate().filter_map(|(i, p)| Some((i, p.grad()?))).collect();
        due.iter().for_each(|(i, _)| self.steps[*i] += 1);
        due
    }

    /// How many steps a parameter has taken.
    pub fn steps(&self, i: usize) -> u64 {
        self.steps[i]
    }

    /// What a parameter is saved under, for messages too.
    pub fn name(&self, i: usize) -> &str {
        &self.names[i]
    }

    /// The cells of a parameter's state, made when they are not there yet.
    pub fn state(&mut self, i: usize, count: usize) -> Result<&[Cell]> {
        while self.state[i].len() < count {
            let value = self.parameters[i].get()?;
            self.state[i].push(Cell::zeros(value.meta().clone(), value.device())?);
        }
        Ok(&self.state[i])
    }

    /// Stages one update of all parameters that have a gradient: `states` cells of state each, and the numbers
    /// that `numbers` gives for the count of steps (the first is 1), the learning rate and the weight decay.
    pub fn stage<const N: usize>(
        &mut self,
        op: impl Into<Op>,
        states: usize,
        numbers: impl Fn(u64, f64, f64) -> [f64; N],
    ) -> Result<Vec<Cell>> {
        let op = op.into();
        // Parameters that were frozen for a while have taken fewer steps; the rest of a group goes in one sweep.
        let mut due = self.due();
        due.sort_by_key(|(i, _)| (self.group[*i], self.steps[*i]));
        let mut written = Vec::with_capacity(due.len() * (1 + states));
        let mut due = due.into_iter().peekable();
        while let Some((first, _)) = due.peek() {
            let (first, begin) = (*first, written.len());
            let together =
                |i: usize, slots: &Slots| (slots.group[i], slots.steps[i]) == (slots.group[first], slots.steps[first]);
            let mut operands = Inputs::with_capacity(due.len() * (2 + states) + 1);
            while let Some((i, gradient)) = due.next_if(|(i, _)| together(*i, self)) {
                let parameter = self.parameters[i].cell().clone();
                let value = parameter.get()?;
                let device = value.device();
                operands.extend([value, gradient]);
                written.push(parameter);
                for cell in self.state(i, states)? {
                    // The model may have been moved since the state was made.
                    operands.push(cell.get_on(device)?);
                    written.push(cell.clone());
                }
            }
            let (lr, decay) = self.rates(first);
            let numbers = numbers(self.steps[first], lr, decay);
            operands.push(Tensor::numbers(numbers.map(Number::Float), Meta::new([N], DType::F64)));
            let node = no_grad(|| Tensor::add_node(op.clone(), operands))?;
            for (out, cell) in written[begin..].iter().enumerate() {
                cell.stage(Tensor { node: node.clone(), out })?;
            }
        }
        Ok(written)
    }

    /// The learning rate, and for each parameter the count of its steps and its state under these names.
    pub fn save(&self, kinds: &[&str]) -> Result<StateDict> {
        let mut state = StateDict::new();
        state.insert("lr", plain(&Tensor::scalar(self.lr))?);
        for (i, name) in self.names.iter().enumerate() {
            state.insert(format!("{name}.step"), plain(&Tensor::scalar(self.steps[i] as i64))?);
            for (kind, cell) in kinds.iter().zip(&self.state[i]) {
                state.insert(format!("{name}.{kind}"), plain(&cell.get()?)?);
            }
        }
        Ok(state)
    }

    /// Takes over what [`Slots::save`] gave. When it fails nothing has changed.
    pub fn load(&mut self, saved: &StateDict, kinds: &[&str]) -> Result<()> {
        let mut reader = Reader::new(saved);
        let lr = reader.number("lr");
        let (mut steps, mut states) = (Vec::new(), Vec::new());
        for (name, parameter) in self.names.iter().zip(&self.parameters) {
            let step = reader.number(&format!("{name}.step")).unwrap_or(0.0) as u64;
            // State is made by the first step.
            let kinds = if step == 0 { &[] } else { kinds };
            let meta = parameter.cell().meta();
            let device = parameter.get()?.device();
            let state = kinds.iter().filter_map(|kind| reader.tensor(&format!("{name}.{kind}"), &meta));
            states.push(state.map(|value| value.to(device)).collect::<Result<_>>()?);
            steps.push(step);
        }
        reader.finish()?;
        self.state = cells(states)?;
        self.steps = steps;
        self.lr = lr.unwrap_or(self.lr);
        Ok(())
    }
}

fn cells(values: Vec<Vec<Tensor>>) -> Result<Vec<Vec<Cell>>> {
    values.iter().map(|list| list.iter().map(|value| Cell::new(value, false)).collect()).collect()
}

/// The name that each parameter has in its model; those without one, or with one that another has too, go by
/// their place.
pub(super) fn names(parameters: &[Parameter]) -> Vec<String> {
    let known: Vec<Option<String>> = parameters.iter().map(|p| p.cell().name().map(|n| n.to_string())).collect();
    let mut count: HashMap<&String, usize> = HashMap::new();
    known.iter().flatten().for_each(|name| *count.entry(name).or_default() += 1);
    let unique = |name: &String| count[name] == 1;
    let chosen = |(i, name): (usize, &Option<String>)| match name {
        Some(name) if unique(name) => name.clone(),
        _ => format!("parameter{i}"),
    };
    known.iter().enumerate().map(chosen).collect()
}

/// The same value as plain data in host memory: no graph, no gradient.
pub(super) fn plain(tensor: &Tensor) -> Result<Tensor> {
    Ok(Tensor::of_storage(tensor.meta().clone(), engine::value(tensor)?))
}

/// The same where it lies, on whatever device.
pub(super) fn kept(tensor: &Tensor) -> Result<Tensor> {
    Ok(Tensor::of_storage(tensor.meta().clone(), engine::stored(tensor)?))
}

/// Takes tensors out of a state dict by name and notes all that is wrong with it.
pub(super) struct Reader<'a> {
    saved: &'a StateDict,
    known: std::collections::HashSet<String>,
    missing: Vec<String>,
    mismatched: Vec<(String, crate::Shape, crate::Shape)>,
}

impl<'a> Reader<'a> {
    pub fn new(saved: &'a StateDict) -> Self {
        Reader { saved, known: Default::default(), missing: Vec::new(), mismatched: Vec::new() }
    }

    /// The tensor of a name, which must have this shape; its type becomes the one wanted.
    pub fn tensor(&mut self, name: &str, want: &Meta) -> Option<Tensor> {
        self.known.insert(name.to_string());
        let Some(value) = self.saved.get(name) else {
            self.missing.push(name.to_string());
            return None;
        };
        if *value.shape() != want.shape {
            self.mismatched.push((name.to_string(), want.shape.clone(), value.shape().clone()));
            return None;
        }
        value.to_dtype(want.dtype).ok()
    }

    /// A single number.
    pub fn number(&mut self, name: &str) -> Option<f64> {
        self.tensor(name, &Meta::new((), DType::F64))?.item().ok()
    }

    /// An error that names everything that was missing, of another shape, or left over.
    pub fn finish(self) -> Result<()> {
        let left = self.saved.names().filter(|name| !self.known.contains(*name));
        let unexpected: Vec<String> = left.map(String::from).collect();
        if self.missing.is_empty() && self.mismatched.is_empty() && unexpected.is_empty() {
            return Ok(());
        }
        Err(Error::StateDict { missing: self.missing, unexpected, mismatched: self.mismatched })
    }
}

/// The entries of one part of a state dict, without the part's prefix.
pub(super) fn part(saved: &StateDict, prefix: &str) -> StateDict {
    saved.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value.clone()))).collect()
}

/// An error about one part of a state dict, with the names that the whole has.
pub(super) fn within(prefix: &str, error: Error) -> Error {
    let whole = |names: Vec<String>| names.into_iter().map(|name| format!("{prefix}{name}")).collect();
    match error {
        Error::StateDict { missing, unexpected, mismatched } => Error::StateDict {
            missing: whole(missing),
            unexpected: whole(unexpected),
            mismatched: mismatched.into_iter().map(|(name, a, b)| (format!("{prefix}{name}"), a, b)).collect(),
        },
        other => other,
    }
}

/// The methods of [`Optimizer`](super::Optimizer) that only look at the slots.
macro_rules! by_slots {
    () => {
        fn parameters(&self) -> &[$crate::nn::Parameter] {
            &self.slots.parameters
        }

        fn lr(&self) -> f64 {
            self.slots.lr
        }

        fn set_lr(&mut self, lr: f64) {
            self.slots.lr = lr;
        }

        fn state_dict(&self) -> $crate::Result<$crate::io::StateDict> {
            self.slots.save(&self.kinds())
        }

        fn load_state_dict(&mut self, state: &$crate::io::StateDict) -> $crate::Result<()> {
            let kinds = self.kinds();
            self.slots.load(state, &kinds)
        }
    };
}
pub(super) use by_slots;
