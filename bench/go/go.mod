module overhead

go 1.19

require gsel v0.0.0

replace gsel => ../../bindings/go
