//! Images that go through the usual chain in memory that is used again: nothing is allocated once it is warm.

use neurona::data::transforms::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor, Transform};
use neurona::data::{Draws, Image};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: by the caller's promise to this function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promise to this function.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_cifar_chain_allocates_nothing() -> neurona::Result<()> {
    let chain = Compose::new()
        .add(RandomCrop::new(32)?.padding(4))
        .add(RandomHorizontalFlip::default())
        .add(ToTensor)
        .add(Normalize::new(&[0.4914, 0.4822, 0.4465], &[0.2470, 0.2435, 0.2616])?);
    let (mut image, mut out) = (Image::default(), vec![0.0; 3072]);
    let mut step = |n: u64| {
        image.refill([32, 32, 3], |bytes| {
            bytes.fill(n as u8);
            Ok(())
        })?;
        chain.apply(&mut image, &mut Draws::new(1, 0, n))?;
        image.write_to(&mut out)
    };
    (0..3).try_for_each(&mut step)?;
    let before = COUNT.get();
    (3..1000).try_for_each(&mut step)?;
    assert_eq!(COUNT.get() - before, 0);
    Ok(())
}
