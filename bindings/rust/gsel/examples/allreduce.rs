//! Every rank adds its number to a sum: `gsel run -n 4 -- ./allreduce`
use gsel::{Comm, Op};

fn main() -> gsel::Result<()> {
    let comm = Comm::from_env()?;
    let mut x = [comm.rank() as f32];
    comm.allreduce(&mut x, Op::SUM)?;
    println!("sum of ranks: {}", x[0]);
    Ok(())
}
