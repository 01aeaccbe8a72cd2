//! Which devices do I get, and why? `cargo run --example devices -- "count:2 | cpu"`
use gsel::{Inventory, Resolve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "auto".to_owned());
    let machine = Inventory::detect()?;
    let selection = match Resolve::new().inventory(&machine).devices(&spec).select() {
        Ok(selection) => selection,
        Err(error) => {
            // The error has the token and its column, so the place can be shown.
            eprintln!(
                "{}\n{}^\n{}",
                spec,
                " ".repeat(error.column.unwrap_or(1) as usize - 1),
                error
            );
            std::process::exit(1);
        }
    };
    for device in selection.devices()? {
        println!("{} {} of {}", device.vendor, device.name, device.host);
    }
    for candidate in selection.candidates()? {
        println!("device {}: {}", candidate.index, candidate.reason);
    }
    for (name, value) in selection.env(None)? {
        println!("{}={}", name, value);
    }
    Ok(())
}
