//! Where a network is, and batches brought there.

use crate::data::Batch;
use crate::nn::Forward;
use crate::{Device, Result, Tensor};

/// The device of a network: that of its first parameter or buffer.
pub(super) fn device_of(net: &dyn Forward) -> Result<Device> {
    let parameter = net.parameters().first().map(|p| p.cell().clone());
    let cell = parameter.or_else(|| net.named_buffers().first().map(|(_, b)| b.cell().clone()));
    cell.map_or(Ok(Device::Cpu), |cell| Ok(cell.get()?.device()))
}

/// The images and labels of a batch on a device. The copy to a GPU goes on while the step before still runs.
pub(super) fn bring(batch: &Batch, device: Device) -> Result<(Tensor, Tensor)> {
    Ok((batch.images.to(device)?, batch.labels.to(device)?))
}
