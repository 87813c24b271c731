-- The tables of the example: mariadb shop < shop.sql
create table if not exists orders (id bigint auto_increment primary key, customer varchar(50) not null, cents bigint not null);
create table if not exists totals (customer varchar(50) character set utf8mb4 collate utf8mb4_bin primary key, orders bigint not null, cents bigint not null);
