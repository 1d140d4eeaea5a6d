//! Sizes and strides for kernels, in the layout of `index.cuh`.

/// The by-value struct of a kernel that finds positions from element numbers: numbers and divisors of one width.
pub(crate) struct Numbers {
    wide: bool,
    bytes: Vec<u8>,
}

impl Numbers {
    /// For tensors of at most this many elements.
    pub fn up_to(elements: usize) -> Self {
        // Multipliers are exact below 2³¹; a last vector may reach a few elements beyond the end.
        Numbers { wide: elements >= (1 << 31) - 64, bytes: Vec::new() }
    }

    /// The C++ type of the numbers.
    pub fn cuda_type(&self) -> &'static str {
        if self.wide { "u64" } else { "u32" }
    }

    /// A number; negative ones wrap around, as offsets may.
    pub fn number(&mut self, n: isize) {
        match self.wide {
            true => self.bytes.extend((n as u64).to_ne_bytes()),
            false => self.bytes.extend((n as u32).to_ne_bytes()),
        }
    }

    /// A size that the kernel divides by; it must not be 0.
    pub fn divisor(&mut self, size: usize) {
        self.number(size as isize);
        if self.wide {
            return;
        }
        let shift = size.next_power_of_two().trailing_zeros();
        let multiplier = ((((1u64 << shift) - size as u64) << 32) / size as u64 + 1) as u32;
        self.bytes.extend(multiplier.to_ne_bytes());
        self.bytes.extend(shift.to_ne_bytes());
    }

    /// The struct's bytes.
    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipliers_divide() {
        let most = (1u32 << 31) - 1;
        for size in [1usize, 2, 3, 5, 7, 10, 32, 100, 255, 256, 641, 65_535, 1_000_003, (1 << 30) + 1, most as usize] {
            let mut numbers = Numbers::up_to(10);
            numbers.divisor(size);
            let bytes = numbers.bytes();
            let [_, multiplier, shift] =
                [0, 4, 8].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
            let divisor = size as u32;
            let near = |n: u32| (n.saturating_sub(2)..=n.saturating_add(2).min(most)).collect::<Vec<_>>();
            for n in [0, divisor, most - most % divisor, most, 12_345_678].into_iter().flat_map(near) {
                let quotient = (((u64::from(n) * u64::from(multiplier)) >> 32) as u32 + n) >> shift;
                assert_eq!(quotient, n / divisor, "{n} / {size}");
            }
        }
    }
}
