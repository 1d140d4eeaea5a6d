//! A model's tensors by name: out of it, and into it.

use super::{Item, Module, module::walk};
use crate::graph::cell::Cell;
use crate::graph::engine;
use crate::io::StateDict;
use crate::{Error, Result, Tensor};

/// What [`Module::load_state_dict`] found besides what it loaded.
///
/// ```
/// use neurona::{io::StateDict, nn::{Linear, Module}};
/// let report = Linear::new(2, 1)?.load_state_dict(&StateDict::new(), false)?;
/// assert_eq!(report.missing, ["weight", "bias"]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// In the model, not in the state dict: left as they were.
    pub missing: Vec<String>,
    /// In the state dict, not in the model: ignored.
    pub unexpected: Vec<String>,
}

fn cells<M: Module + ?Sized>(module: &M) -> Vec<(String, Cell)> {
    let mut found = Vec::new();
    walk(module, &mut |path, item| match item {
        Item::Parameter(p) => found.push((path.to_string(), p.cell().clone())),
        Item::Buffer(b) => found.push((path.to_string(), b.cell().clone())),
        Item::Mode(_) => {}
    });
    found
}

pub(super) fn read<M: Module + ?Sized>(module: &M) -> Result<StateDict> {
    let cells = cells(module);
    // Statistics that are still staged are computed together.
    let staged: Vec<Cell> = cells.iter().map(|(_, cell)| cell.clone()).collect();
    engine::force(&[], &staged)?;
    cells.into_iter().map(|(name, cell)| Ok((name, apart(&cell.get()?)?))).collect()
}

/// The same value as plain data: no graph, no gradient.
fn apart(tensor: &Tensor) -> Result<Tensor> {
    Ok(Tensor::of_storage(tensor.meta().clone(), engine::value(tensor)?))
}

pub(super) fn write<M: Module + ?Sized>(module: &M, state: &StateDict, strict: bool) -> Result<LoadReport> {
    let cells = cells(module);
    let mut report = LoadReport::default();
    let (mut mismatched, mut values) = (Vec::new(), Vec::new());
    for (name, cell) in &cells {
        let want = cell.meta();
        match state.get(name) {
            // Files from before PyTorch 0.4.1 do not have it, and it only matters to cumulative averages.
            None if !strict && name.rsplit('.').next() == Some("num_batches_tracked") => {}
            None => report.missing.push(name.clone()),
            Some(value) if *value.shape() != want.shape => {
                mismatched.push((name.clone(), want.shape, value.shape().clone()));
            }
            Some(value) => values.push((cell, value.to_dtype(want.dtype)?)),
        }
    }
    let known: std::collections::HashSet<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
    report.unexpected = state.names().filter(|name| !known.contains(name)).map(String::from).collect();
    let incomplete = strict && !(report.missing.is_empty() && report.unexpected.is_empty());
    if incomplete || !mismatched.is_empty() {
        let LoadReport { missing, unexpected } = if strict { report } else { LoadReport::default() };
        return Err(Error::StateDict { missing, unexpected, mismatched });
    }
    // Everything that can fail has been computed before the first cell changes.
    let values: Vec<(&Cell, Tensor)> =
        values.into_iter().map(|(cell, value)| Ok((cell, apart(&value)?))).collect::<Result<_>>()?;
    values.iter().try_for_each(|(cell, value)| cell.set(value))?;
    Ok(report)
}
