-- The tables of the example, as a user who owns them: psql -f shop.sql. The server needs wal_level = logical.
create table orders (id bigint primary key, customer text not null, cents bigint not null);
alter table orders replica identity full; -- the log must contain old rows, because the job subtracts them from the totals
create table totals (customer text primary key, orders bigint not null, cents bigint not null);
create publication shop for table orders;
