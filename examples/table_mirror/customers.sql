-- The table that the job mirrors: psql -f customers.sql, on a server with wal_level = logical
create table customers (id int primary key, name text not null, email text, country text);
create publication crm for table customers;
