//! More of something than a machine word has bits, and numbers that those of C have no place for.
use gsel::{Axis, Code, Collective, Comm, Config, Data, Inventory, Layer, Mesh, Model, Param, Trainer, TrainerOptions};
use gsel::{UniqueId, Value};
use support::ranks;
mod support;

const WIDE: usize = 130;

fn alone() -> Comm {
    let builder = Comm::builder().ranks(0, 1, UniqueId::create().unwrap());
    builder.join().unwrap()
}

#[test]
fn a_layer_has_more_than_64_parameters_inputs_and_outputs() -> gsel::Result<()> {
    let mut model = Model::new()?;
    let (mut params, mut values) = (Vec::new(), Vec::new());
    for i in 0..WIDE {
        params.push(model.add_param(Param::new(&format!("w{}", i), &[1]).ones())?);
        values.push(model.add_value(Value::new(&format!("y{}", i), &[1]))?);
    }
    let x = model.add_value(Value::input("x", &[1]))?;
    let outputs = [
        model.add_value(Value::scalar("loss"))?,
        model.add_value(Value::scalar("weight"))?,
    ];
    let wide = Layer::new("wide", &[x], &values, &params).forward(|call| {
        (0..WIDE).for_each(|i| call.output::<f32>(i)[0] = call.param::<f32>(i)[0] * call.input::<f32>(0)[0]);
        Ok(())
    });
    model.add_layer(wide.backward(|call| {
        (0..WIDE).for_each(|i| call.d_param(i)[0] = call.d_output::<f32>(i)[0] * call.input::<f32>(0)[0]);
        Ok(())
    }))?;
    let sum = Layer::loss("sum", &values, outputs, &[]).forward(|call| {
        call.output::<f64>(0)[0] = (0..WIDE).map(|i| f64::from(call.input::<f32>(i)[0])).sum();
        call.output::<f64>(1)[0] = 1.0;
        Ok(())
    });
    model.add_layer(sum.backward(|call| {
        (0..WIDE).for_each(|i| call.d_input::<f32>(i).unwrap()[0] = 1.0);
        let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call.d_input::<f32>(WIDE - 1).is_some()));
        assert!(twice.is_err(), "a gradient was handed out twice");
        Ok(())
    }))?;
    let config = Config::builder().set("train.batch", 1).build()?;
    let options = TrainerOptions::new().config(&config).data(|request| {
        request.elements::<f32>().fill(2.0);
        Ok(Data::Filled)
    });
    let comm = alone();
    let mut trainer = Trainer::new(&comm, &mut model, options)?;
    assert_eq!(trainer.step()?.loss, 2.0 * WIDE as f64);
    let mut gradient = [0f32];
    trainer.read_gradient(params[WIDE - 1], &mut gradient)?;
    assert_eq!(gradient, [2.0]);
    Ok(())
}

/// Cut to 32 bits, these are ranks 0 and "any".
const NO_RANKS: [usize; 2] = [1 << 32, usize::MAX];

#[test]
fn ranks_that_c_has_no_number_for_are_refused() {
    ranks(2, |comm| {
        let refused = |result: gsel::Result<()>| assert_eq!(result.unwrap_err().code, Code::ARG);
        let (send, mut recv, other) = ([1f32], [0f32], 1 - comm.rank());
        for rank in NO_RANKS {
            refused(comm.send(&send, rank));
            refused(comm.recv(&mut recv, rank));
            refused(comm.sendrecv(&send, rank, &mut recv, other));
            refused(comm.sendrecv(&send, other, &mut recv, rank));
            refused(comm.run(Collective::sendrecv(&send, other, &mut recv, rank)));
            refused(comm.broadcast(&mut recv, rank));
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn counts_and_places_that_c_has_no_number_for_are_refused() {
    let inventory = Inventory::detect().unwrap();
    let mesh = Mesh::resolve(None, 4).unwrap();
    for n in NO_RANKS {
        assert!(Mesh::resolve(None, n).is_err());
        assert_eq!(mesh.coordinate(n, Axis::DATA), None);
        assert!(inventory.partition(n, 0).is_err() && inventory.interconnects(n).is_err());
    }
    let comm = alone();
    assert_eq!(
        comm.split(Some(u32::MAX), 0).err().map(|error| error.code),
        Some(Code::ARG)
    );
    let mesh = Mesh::resolve(None, 1).unwrap();
    for axis in [-1, 32, 1 << 8] {
        assert_eq!(
            mesh.split(&comm, &[Axis(axis)]).err().map(|error| error.code),
            Some(Code::ARG)
        );
    }
}
