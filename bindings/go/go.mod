module gsel

go 1.19
