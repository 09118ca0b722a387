// SPDX-License-Identifier: Apache-2.0
//! Copies numbers to the card and back with cudarc, starts a kernel, and takes memory until it is refused. cudarc opens
//! the driver, looks each function up in it, and takes memory in the order of a stream. Prints what came back.
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

const KERNEL: &str = ".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry mine(.param .u64 a)\n{ ret; }\n";
const BLOCK: usize = 64 << 20;

/// -> how often memory was taken, and the error that ended it. All of it is given back.
fn fill(stream: &Arc<CudaStream>) -> Result<(usize, DriverError), DriverError> {
    let mut held: Vec<CudaSlice<u8>> = Vec::new();
    let refusal = loop {
        match unsafe { stream.alloc::<u8>(BLOCK) } {
            Ok(block) => held.push(block),
            Err(refusal) => break refusal,
        }
    };
    let count = held.len();
    drop(held);
    stream.synchronize()?;
    Ok((count, refusal))
}

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    println!("{} of {}", context.name()?, context.total_mem()?);
    let numbers: Vec<u32> = (0..100_000).collect();
    let there = stream.clone_htod(&numbers)?;
    let again = stream.clone_dtod(&there)?;
    println!("right {}", stream.clone_dtoh(&again)? == numbers);
    let kernel = context.load_module(Ptx::from_src(KERNEL))?.load_function("mine")?;
    unsafe { stream.launch_builder(&kernel).arg(&there).launch(LaunchConfig::for_num_elems(1024)) }?;
    drop(there);
    drop(again);
    stream.synchronize()?;
    for _ in 0..2 {
        let (count, refusal) = fill(&stream)?;
        println!("full after {count}: {:?}", refusal.0);
    }
    Ok(())
}
