//! The smallest model there is: loss = (w - x)^2 over samples x = 1, 3, 5, ...; with n samples per step the mean of x is n, and
//! plain SGD with rate 1/4 halves the distance to it.
use gsel::*;

pub fn forward(call: &Forward<'_>) -> Outcome {
    let (w, x) = (call.param::<f32>(0)[0], call.input::<f32>(0));
    call.output::<f64>(0)[0] = x.iter().map(|x| f64::from((w - x) * (w - x))).sum();
    call.output::<f64>(1)[0] = x.len() as f64;
    Ok(())
}

pub fn backward(call: &Backward<'_>) -> Outcome {
    let (w, x) = (call.param::<f32>(0)[0], call.input::<f32>(0));
    let gradient: f32 = x.iter().map(|x| 2.0 * (w - x)).sum();
    let sum = &mut call.d_param(0)[0];
    *sum = if call.accumulate() { *sum + gradient } else { gradient };
    Ok(())
}

pub fn fill(request: &DataRequest<'_>, n: usize) -> DataOutcome {
    for (x, id) in request.elements::<f32>().iter_mut().zip(request.sample_ids()) {
        *x = (2 * (id % n as i64) + 1) as f32;
    }
    Ok(Data::Filled)
}

/// The model with these kernels; parameter w and value x.
pub fn described(
    forward: impl Fn(&Forward<'_>) -> Outcome + Send + Sync + 'static,
) -> Result<(Model, ParamId, ValueId)> {
    let mut model = Model::new()?;
    let w = model.add_param(Param::new("w", &[1]))?;
    let x = model.add_value(Value::input("x", &[1]))?;
    let outputs = [
        model.add_value(Value::scalar("loss"))?,
        model.add_value(Value::scalar("weight"))?,
    ];
    model.add_layer(
        Layer::loss("distance", &[x], outputs, &[w])
            .forward(forward)
            .backward(backward),
    )?;
    Ok((model, w, x))
}

pub fn config(n: usize) -> Config {
    let sgd = Config::builder()
        .set("train.optimizer", "sgd")
        .set("train.learning_rate", 0.25)
        .set("train.weight_decay", 0);
    sgd.set("train.batch", n).build().unwrap()
}
